"""`tplaudit replay` as a person runs it."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from command_processes import run_command
from commands import CLEARING, refused
from tplaudit.fixtures import template, transcript
from tplaudit.probes.replay.replay_report import ReplayReport, to_json

CLAUDE = transcript("claude-code")
IN_PLACE = template("in-place")


def replay_json(tplaudit, *arguments: object) -> dict:
    done = tplaudit("replay", CLAUDE, "--json", *arguments, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def policy(report: dict, name: str) -> dict:
    return next(each for each in report["policies"] if each["policy"] == name)


@pytest.fixture(scope="module")
def strict() -> dict:
    return _run("--policy", "omlx", "--policy", "as-is", "--engine", "tokens")


@pytest.fixture(scope="module")
def in_place() -> dict:
    return _run("--template", str(IN_PLACE), "--engine", "tokens")


def _run(*arguments: str) -> dict:
    done = run_command("replay", CLAUDE, "--json", *arguments, timeout=600)
    assert done.returncode == 0, done.stderr
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


@pytest.mark.parametrize("lines", [26, pytest.param(None, marks=pytest.mark.slow)])
def test_both_engines_count_alike(lines: int | None, tmp_path: Path, tplaudit) -> None:
    session = tmp_path / "session.jsonl"
    session.write_text("".join(CLAUDE.read_text().splitlines(keepends=True)[:lines]))
    options = ("--template", IN_PLACE, "--policy", "omlx", "--policy", "hoist")
    counted, computed = (
        json.loads(tplaudit("replay", session, "--json", *options, "--engine", name, timeout=600).stdout)
        for name in ("tokens", "mlx")
    )
    turns = [
        pair
        for both in zip(counted["policies"], computed["policies"], strict=True)
        for pair in zip(*(policy["turns"] for policy in both), strict=True)
    ]
    assert len(turns) >= 10
    assert any(one["avoidable"] for one, _ in turns)
    for one, other in turns:
        assert one["cost"] is None
        assert other["cost"]["kind"] == "measured"
        assert other["cost"]["seconds"] > 0
        assert {**one, "cost": None} == {**other, "cost": None}


def test_the_document_is_the_same_at_every_run_and_round_trips(in_place: dict) -> None:
    again = _run("--template", str(IN_PLACE), "--engine", "tokens")
    assert again == in_place
    assert to_json(msgspec.convert(in_place, ReplayReport)) == in_place
    assert in_place["schema"] == "tplaudit.replay/2"


def test_sums_of_every_turn(strict: dict) -> None:
    for turn in policy(strict, "omlx")["turns"]:
        assert turn["reused"] + turn["reprefill"] == turn["prompt_tokens"]
        assert turn["avoidable"] == max(0, turn["reprefill"] - turn["unavoidable"])
        assert turn["reused"] <= turn["depth"]
        assert turn["unavoidable"] >= 1


def test_verify(tmp_path: Path, tplaudit) -> None:
    short = tmp_path / "short.jsonl"
    short.write_text("".join(CLAUDE.read_text().splitlines(keepends=True)[:14]))
    done = tplaudit("replay", short, "--verify", "--json", "--policy", "omlx", timeout=600)
    assert done.returncode == 0, done.stderr
    verify = json.loads(done.stdout)["verify"]
    assert verify["checked_turns"] >= 3
    assert verify["argmax_equal"] is True
    assert verify["passed"] is True
    assert verify["max_abs_logit_difference"] <= 10 * max(verify["cold_noise"], 1e-6)


def test_a_small_cache_drops_blocks_and_reuses_less(tplaudit) -> None:
    options = ("--template", IN_PLACE, "--engine", "tokens", "--policy", "as-is", "--no-causes")
    free = replay_json(tplaudit, *options)
    tight = replay_json(tplaudit, *options, "--cache-bytes", "2MB")
    assert tight["policies"][0]["cache"]["bytes"] <= 2_000_000 == tight["cache"]["capacity_bytes"]
    assert tight["policies"][0]["totals"]["reused"] < free["policies"][0]["totals"]["reused"]


def test_kwargs_reach_the_template(tplaudit) -> None:
    options = ("--policy", "hoist", "--engine", "tokens", "--no-causes")
    stripped = replay_json(tplaudit, *options)
    kept = replay_json(tplaudit, *options, "--kwargs", "preserve_thinking=true")
    last = -1
    assert (
        kept["policies"][0]["turns"][last]["prompt_tokens"]
        > stripped["policies"][0]["turns"][last]["prompt_tokens"]
    )


def test_a_bare_template_says_that_counts_are_approximate(tplaudit) -> None:
    done = tplaudit("replay", CLAUDE, "--model", IN_PLACE, "--no-causes", "--json")
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


# Caches

CHAT = transcript("chat")


def test_each_policy_has_the_cache_of_its_server_unless_a_block_size_is_given(tplaudit) -> None:
    command = ("replay", CHAT, "--engine", "tokens", "-p", "as-is", "-p", "vllm", "-p", "rapid-mlx")
    report = json.loads(tplaudit(*command, "--json").stdout)
    caches = [policy["server_cache"] for policy in report["policies"]]
    assert [(cache["kind"], cache["block_size"]) for cache in caches] == [
        ("paged", 256),
        ("vllm", 16),
        ("rapid-mlx", 1),
    ]
    assert report["cache"] == caches[0]
    assert {cache["layers"] for cache in caches} == {"plain"}
    text = " ".join(tplaudit(*command).stdout.split())
    assert "paged, blocks of 256 tokens (as-is); vllm, blocks of 16 tokens (vllm); rapid-mlx" in text
    sized = json.loads(tplaudit(*command, "--json", "--block-size", "32").stdout)
    assert {
        (policy["server_cache"]["kind"], policy["server_cache"]["block_size"]) for policy in sized["policies"]
    } == {("paged", 32)}


def test_stored_replies_are_said_to_be_text_or_ids(tplaudit) -> None:
    command = ("replay", CHAT, "--engine", "tokens", "-p", "vllm", "--template", IN_PLACE)
    kept = json.loads(tplaudit(*command, "--json", "--store", "prompt+output").stdout)
    alone = json.loads(tplaudit(*command, "--json").stdout)
    assert (kept["cache"]["store"], alone["cache"]["store"]) == ("prompt+output", "prompt")
    turns = kept["policies"][0]["turns"]
    assert [turn["reply"]["source"] for turn in turns if turn["reply"]] == ["text"] * 6
    assert kept["policies"][0]["totals"]["reused"] > alone["policies"][0]["totals"]["reused"]
    assert all(turn["reply"] is None for turn in alone["policies"][0]["turns"])
    text = " ".join(tplaudit(*command, "--store", "prompt+output").stdout.split())
    assert "Replies are stored: 6 with the ids of their text." in text


def test_a_rate_predicts_seconds_and_says_so(tplaudit) -> None:
    command = ("replay", CHAT, "-p", "as-is", "--prefill-rate", "200")
    report = json.loads(tplaudit(*command, "--engine", "tokens", "--json").stdout)
    assert report["prefill_rate"] == 200
    for turn in report["policies"][0]["turns"]:
        assert turn["cost"] == {
            "seconds": pytest.approx(turn["reprefill"] / 200),
            "kind": "predicted",
            "error": None,
            "measured": None,
        }
    totals = report["policies"][0]["totals"]
    assert totals["seconds"] == pytest.approx(totals["reprefill"] / 200)
    text = " ".join(tplaudit(*command, "--engine", "tokens").stdout.split())
    assert "seconds are predicted from 200 tokens per second" in text
    assert f"{totals['seconds']:.2f}" in text
    assert "--prefill-rate: the mlx engine measures" in refused(tplaudit(*command, "--engine", "mlx"))


# Causes


def test_totals_name_the_causes(tplaudit) -> None:
    report = json.loads(tplaudit(*CLEARING, "--json").stdout)
    turn = report["policies"][0]["turns"][2]
    # Counted by hand, a character a token: what is new in turn 3, and the 340 - 120 tokens before. Of those
    # a cache of whole blocks would give 208 had the template kept its word; it gives 144 of the 147 shared.
    new = (
        "<|im_start|>assistant\nYes, it is green.<|im_end|>\n"
        "<|im_start|>user\nThen tag it.<|im_end|>\n<|im_start|>assistant\n<think>\n"
    )
    unavoidable = turn["prompt_tokens"] - (turn["prompt_tokens"] - len(new)) // 16 * 16
    assert (turn["prompt_tokens"], len(new), turn["depth"]) == (340, 120, 147)
    assert (turn["reused"], turn["unavoidable"]) == (147 // 16 * 16, unavoidable) == (144, 132)
    assert turn["avoidable"] == 340 - 144 - 132 == 64
    totals = report["policies"][0]["totals"]
    assert totals["causes"]["thinking-stripped"] == {"turns": 1, "avoidable": 64}
    assert sum(each["avoidable"] for each in totals["causes"].values()) == totals["avoidable"]


@pytest.mark.parametrize(("least", "code"), [("never", 0), ("error", 0), ("warning", 1), ("note", 1)])
def test_fail_on(least: str, code: int, tplaudit) -> None:
    assert tplaudit(*CLEARING, "--fail-on", least).returncode == code


def test_jobs_change_nothing_in_the_report(tplaudit) -> None:
    command = (*CLEARING, "--policy", "note", "--json")
    assert tplaudit(*command, "--jobs", "2").stdout == tplaudit(*command).stdout


@pytest.mark.parametrize(
    "arguments",
    [(CLAUDE, "--engine", "mlx"), ("-", "--engine", "tokens")],
    ids=["mlx", "transcript on stdin"],
)
def test_jobs_that_cannot_be(arguments: tuple[object, ...], tplaudit) -> None:
    done = tplaudit("replay", *arguments, "--jobs", "2", stdin=IN_PLACE.read_text())
    assert done.returncode == 2
    assert "--jobs" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("config", "known"),
    [
        ({"model_type": "qwen3_5", "full_attention_interval": 2}, False),
        ({"model_type": "falcon_h1"}, False),
        ({"model_type": "deepseek_v32", "kv_lora_rank": 32}, False),
        ({"model_type": "gemma4_text", "global_head_dim": 64, "sliding_window": 64}, False),
        ({"model_type": "llama4_text", "attention_chunk_size": 64}, False),
        ({"model_type": "gemma3_text", "sliding_window": 64}, True),
        ({"model_type": "llama"}, True),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else "",
)
def test_a_limit_needs_sizes_that_are_known(tplaudit, tmp_path: Path, config: dict, known: bool) -> None:
    sizes = {"hidden_size": 64, "num_hidden_layers": 6, "num_attention_heads": 2, "num_key_value_heads": 1}
    (tmp_path / "config.json").write_text(json.dumps(sizes | config))
    (tmp_path / "chat_template.jinja").write_bytes(IN_PLACE.read_bytes())
    done = tplaudit(
        *("replay", transcript("chat"), "--model", tmp_path, "--tokenizer", "characters"),
        *("--engine", "tokens", "--cache-bytes", "1MB", "-p", "as-is", "--json"),
    )
    if known:
        assert done.returncode == 0, done.stderr
        cache = json.loads(done.stdout)["policies"][0]["cache"]
        assert 0 < cache["bytes"] <= 1_000_000
    else:
        assert done.returncode == 2
        assert "does not say how large the state of its layers is" in done.stderr
        assert "leave it out, or use --engine mlx" in done.stderr
