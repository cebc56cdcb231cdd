"""`tplaudit replay` beside what a server said of its reuse, as a person runs it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from actual_sessions import batched_log, ferry, replayed
from commands import refused
from tplaudit import fixtures
from tplaudit.probes.replay.replay_report import PolicyReport, ReplayReport, to_json

TEMPLATE = ("--template", fixtures.template("in-place"), "--tokenizer", "characters", "--engine", "tokens")


@pytest.fixture
def counted() -> PolicyReport:
    return replayed(ferry(3, edited=3), "llama-cpp", store="prompt+output")


def _write(path: Path, report: PolicyReport, *, usage: bool = True) -> Path:
    """Write the session as record.py does, with answers that say what a report counts, or do not."""
    lines = []
    for request, turn in zip(ferry(3, edited=3), report.turns, strict=True):
        response: dict[str, object] = {"choices": [{"message": request.reply}]}
        if usage:
            details = {"cached_tokens": turn.reused}
            response["usage"] = {"prompt_tokens": turn.prompt_tokens, "prompt_tokens_details": details}
        body = {"messages": [dict(message.data) for message in request.messages]}
        lines.append(json.dumps({"request": body, "response": response}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_column_and_a_sentence(counted: PolicyReport, tmp_path: Path, tplaudit) -> None:
    path = _write(tmp_path / "session.jsonl", counted)
    options = ("-p", "llama-cpp", "--no-causes", *TEMPLATE)
    done = tplaudit("replay", path, *options, "--store", "prompt+output", "--conversation", 1)
    assert done.returncode == 0, done.stderr
    assert "┃ actual ┃" in done.stdout
    assert "Counted and actual reuse agree on 6 of the 6 turns with a number of the server." in done.stdout
    done = tplaudit("replay", path, *options)
    assert "The first that differs is turn" in done.stdout
    assert "with --store prompt+output the cache gives" in " ".join(done.stdout.split())


def test_json_has_what_was_said(counted: PolicyReport, tmp_path: Path, tplaudit) -> None:
    path = _write(tmp_path / "session.jsonl", counted)
    done = tplaudit("replay", path, "-p", "llama-cpp", "--store", "prompt+output", "--json", *TEMPLATE)
    report = json.loads(done.stdout)
    (policy,) = report["policies"]
    for turn in policy["turns"]:
        length, reused = turn["prompt_tokens"], turn["reused"]
        assert turn["actual"] == {"reused": reused, "prompt_tokens": length, "source": "usage"}
    assert policy["agreement"]["agreeing"] == 6
    assert report["ranking"] is None
    assert to_json(msgspec.convert(report, ReplayReport)) == report


def test_without_numbers_there_is_no_column_and_the_flag_is_named(
    counted: PolicyReport, tmp_path: Path, tplaudit
) -> None:
    path = _write(tmp_path / "session.jsonl", counted, usage=False)
    done = tplaudit("replay", path, "-p", "vllm", "--no-causes", *TEMPLATE)
    assert "actual ┃" not in done.stdout
    assert "start the server with --enable-prompt-tokens-details" in " ".join(done.stdout.split())


def test_the_log_alone(counted: PolicyReport, tmp_path: Path, tplaudit) -> None:
    path = _write(tmp_path / "session.jsonl", counted, usage=False)
    log = batched_log(counted, tmp_path / "server.log")
    options = ("-p", "llama-cpp", "--store", "prompt+output", "--server-log", log, *TEMPLATE)
    done = tplaudit("replay", path, *options, "--no-causes")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "agree on 6 of the 6 turns" in said
    assert "lines 2-7 were used, for 6 turns; 0 more requests" in said
    (policy,) = json.loads(tplaudit("replay", path, *options, "--json").stdout)["policies"]
    assert {turn["actual"]["source"] for turn in policy["turns"]} == {"log"}


def test_several_processes_read_the_log_too(counted: PolicyReport, tmp_path: Path, tplaudit) -> None:
    path = _write(tmp_path / "session.jsonl", counted, usage=False)
    log = batched_log(counted, tmp_path / "server.log")
    options = ("-p", "llama-cpp", "-p", "vllm", "--server-log", log, "--json", "--no-causes", *TEMPLATE)
    one, two = (tplaudit("replay", path, *options, "--jobs", jobs).stdout for jobs in (1, 2))
    assert one == two


def test_a_log_that_says_nothing(counted: PolicyReport, tmp_path: Path, tplaudit) -> None:
    path = _write(tmp_path / "session.jsonl", counted)
    log = tmp_path / "server.log"
    for text in ("", "INFO: started\n", "\0\1"):
        log.write_text(text)
        assert str(log) in refused(tplaudit("replay", path, "--server-log", log, *TEMPLATE))
    assert "there is no such file" in refused(tplaudit("replay", path, "--server-log", "none.log", *TEMPLATE))


def test_auto_finds_the_server_and_goes_on_with_it(counted: PolicyReport, tmp_path: Path, tplaudit) -> None:
    path = _write(tmp_path / "session.jsonl", counted)
    done = tplaudit("replay", path, "-p", "auto", "--json", "--no-causes", *TEMPLATE, timeout=200)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    ranking = report["ranking"]
    assert ranking["fits"]
    assert "--policy llama-cpp --store prompt+output" in ranking["tied"]
    assert 1 <= len(ranking["candidates"]) <= 10
    (policy,) = report["policies"]
    assert policy["policy"] == ranking["candidates"][0]["policy"]
    assert policy["agreement"]["agreeing"] == ranking["candidates"][0]["agreeing"] == 6
    assert to_json(msgspec.convert(report, ReplayReport)) == report


def test_auto_prints_the_ranking_first(counted: PolicyReport, tmp_path: Path, tplaudit) -> None:
    path = _write(tmp_path / "session.jsonl", counted)
    options = ("-p", "auto", "-p", "as-is", "--store", "prompt+output", "--no-causes", *TEMPLATE)
    done = tplaudit("replay", path, *options, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("which server fits: the best of ")
    assert "are tied, and cannot be told apart by this session" in " ".join(done.stdout.split())
    assert "policy as-is" in done.stdout


def test_auto_reads_a_session_from_stdin(counted: PolicyReport, tmp_path: Path, tplaudit) -> None:
    text = _write(tmp_path / "session.jsonl", counted).read_text()
    options = ("-p", "auto", "--store", "prompt+output", "--no-causes", *TEMPLATE)
    done = tplaudit("replay", "-", *options, stdin=text, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "agree on 6 of the 6 turns" in " ".join(done.stdout.split())


def test_auto_without_numbers_says_what_it_needs(counted: PolicyReport, tmp_path: Path, tplaudit) -> None:
    path = _write(tmp_path / "session.jsonl", counted, usage=False)
    said = refused(tplaudit("replay", path, "-p", "auto", *TEMPLATE))
    assert "--enable-prompt-tokens-details" in said
    assert "--server-log" in said
