"""`tplaudit replay` as a person runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tplaudit.fixtures import template, transcript
from tplaudit.probes.report import from_json, to_json

CLAUDE = transcript("claude-code")
IN_PLACE = template("in-place")


def replay_json(tplaudit, *arguments: object) -> dict:
    done = tplaudit("replay", CLAUDE, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def without_measured(value):
    if isinstance(value, dict):
        return {
            key: without_measured(each) for key, each in value.items() if key not in ("seconds", "measured")
        }
    return [without_measured(each) for each in value] if isinstance(value, list) else value


def policy(report: dict, name: str) -> dict:
    return next(each for each in report["policies"] if each["policy"] == name)


@pytest.fixture(scope="module")
def strict() -> dict:
    return _run("--policy", "omlx", "--policy", "as-is", "--engine", "tokens")


@pytest.fixture(scope="module")
def in_place() -> dict:
    return _run("--template", str(IN_PLACE), "--engine", "tokens")


def _run(*arguments: str) -> dict:
    done = subprocess.run(
        [sys.executable, "-m", "tplaudit.cli.app", "replay", str(CLAUDE), "--json", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_the_hoist_keeps_the_depth_within_the_leading_block(strict: dict) -> None:
    run = policy(strict, "omlx")
    assert run["totals"]["avoidable"] > run["totals"]["prompt_tokens"] / 2
    wasteful = [turn for turn in run["turns"] if turn["avoidable"]]
    assert len(wasteful) > 25
    for turn in wasteful:
        parted = turn["divergence"]
        assert parted["message"]["role"] == "system"
        assert parted["rendered_index"] == 0
        assert any(each["kind"] == "hoisted" for each in turn["actions"])
    depths = [turn["depth"] for turn in wasteful]
    assert depths == sorted(depths)
    assert depths[-1] - depths[0] < 500
    assert wasteful[-1]["prompt_tokens"] - wasteful[0]["prompt_tokens"] > 4000
    assert "moved into the first system block" in run["summary"]


def test_as_is_raises_in_every_turn_and_is_reported(strict: dict) -> None:
    run = policy(strict, "as-is")
    assert all("only as the first message" in turn["error"] for turn in run["turns"])
    assert run["totals"]["prompt_tokens"] == 0


def test_an_in_place_template_wastes_next_to_nothing_as_is(in_place: dict) -> None:
    totals = policy(in_place, "as-is")["totals"]
    assert totals["avoidable"] < 0.02 * totals["prompt_tokens"]


def test_omlx_rewrites_even_an_in_place_template_from_the_first_unsupported_placement(in_place: dict) -> None:
    run = policy(in_place, "omlx")
    first = next(
        turn["turn"]
        for turn in run["turns"]
        if any(action["kind"] == "unsupported" for action in turn["actions"])
    )
    before = [turn["avoidable"] for turn in run["turns"] if turn["turn"] < first]
    assert len(before) > 10
    assert sum(before) == 0
    assert run["turns"][first - 1]["avoidable"] > 1000
    assert f"From turn {first} on" in run["summary"]


def test_both_engines_count_alike(tplaudit) -> None:
    counted = replay_json(tplaudit, "--template", IN_PLACE, "--engine", "tokens", "--policy", "omlx")
    computed = replay_json(tplaudit, "--template", IN_PLACE, "--engine", "mlx", "--policy", "omlx")
    turns = zip(counted["policies"][0]["turns"], computed["policies"][0]["turns"], strict=True)
    for one, other in turns:
        assert one["cost"] is None
        assert other["cost"]["kind"] == "measured"
        assert other["cost"]["seconds"] > 0
        assert {**one, "cost": None} == {**other, "cost": None}


def test_the_document_is_the_same_at_every_run_and_round_trips(in_place: dict) -> None:
    again = _run("--template", str(IN_PLACE), "--engine", "tokens")
    assert again == in_place
    assert to_json(from_json(in_place)) == in_place
    assert in_place["schema"] == "tplaudit.replay/1"


def test_sums_of_every_turn(strict: dict) -> None:
    for turn in policy(strict, "omlx")["turns"]:
        assert turn["reused"] + turn["reprefill"] == turn["prompt_tokens"]
        assert turn["avoidable"] == max(0, turn["reprefill"] - turn["unavoidable"])
        assert turn["reused"] <= turn["depth"]
        assert turn["unavoidable"] >= 1


def test_verify(tmp_path: Path, tplaudit) -> None:
    short = tmp_path / "short.jsonl"
    short.write_text("".join(CLAUDE.read_text().splitlines(keepends=True)[:14]))
    done = tplaudit("replay", short, "--verify", "--json", "--policy", "omlx")
    assert done.returncode == 0, done.stderr
    verify = json.loads(done.stdout)["verify"]
    assert verify["checked_turns"] >= 3
    assert verify["argmax_equal"] is True
    assert verify["passed"] is True
    assert verify["max_abs_logit_difference"] <= 10 * max(verify["cold_noise"], 1e-6)


def test_a_small_cache_drops_blocks_and_reuses_less(tplaudit) -> None:
    options = ("--template", IN_PLACE, "--engine", "tokens", "--policy", "as-is")
    free = replay_json(tplaudit, *options)
    tight = replay_json(tplaudit, *options, "--cache-bytes", "2MB")
    assert tight["policies"][0]["cache"]["bytes"] <= 2_000_000 == tight["cache"]["capacity_bytes"]
    assert tight["policies"][0]["totals"]["reused"] < free["policies"][0]["totals"]["reused"]


def test_kwargs_reach_the_template(tplaudit) -> None:
    options = ("--policy", "hoist", "--engine", "tokens")
    stripped = replay_json(tplaudit, *options)
    kept = replay_json(tplaudit, *options, "--kwargs", "preserve_thinking=true")
    last = -1
    assert (
        kept["policies"][0]["turns"][last]["prompt_tokens"]
        > stripped["policies"][0]["turns"][last]["prompt_tokens"]
    )


def test_a_bare_template_says_that_counts_are_approximate(tplaudit) -> None:
    done = tplaudit("replay", CLAUDE, "--model", IN_PLACE, "--json")
    report = json.loads(done.stdout)
    assert report["model"]["approximate"] is True
    assert report["engine"] == "tokens"
    assert "approximate" in done.stderr
    assert any("approximate" in note for note in report["notes"])


def test_output_file_and_plain_text(tmp_path: Path, tplaudit) -> None:
    out = tmp_path / "report.txt"
    done = tplaudit("replay", CLAUDE, "--engine", "tokens", "--output", out, NO_COLOR="1")
    assert done.returncode == 0
    assert done.stdout == ""
    text = out.read_text()
    assert "\x1b[" not in text
    assert "policy omlx" in text
    assert "moved into the first system block" in text.replace("\n", " ")


def test_head_closes_the_pipe_without_a_traceback() -> None:
    done = subprocess.run(
        f"{sys.executable} -m tplaudit.cli.app replay {CLAUDE} --engine tokens | head -n 2",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert len(done.stdout.splitlines()) == 2
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
