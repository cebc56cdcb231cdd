"""What a person reads of a turn: no two lines contradict each other, and what is not explained is named."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console
from tplaudit import fixtures
from tplaudit.cli.formats import replay_text
from tplaudit.cli.formats.turn_text import draw_turn
from tplaudit.probes.causes import registry
from tplaudit.probes.policies.registry import POLICIES
from tplaudit.probes.replay.replay_report import ReplayReport

from tests.recordings import SESSIONS, replayed

#: Words for what became of a message. Of one message, one of them is true.
OUTCOMES = {"dropped", "hoisted", "noted", "relocated", "merged"}
SERVER = re.compile(r"  server    (\w+) (?:message|messages) ([\d, ]+)")


def written(draw: Callable[..., None], report: ReplayReport, *arguments: object) -> str:
    to = io.StringIO()
    draw(report, *arguments, Console(file=to, width=400))
    return to.getvalue()


def contradictions(text: str) -> list[str]:
    """Return what the lines about one turn under one policy say and deny."""
    found = []
    done: dict[str, set[str]] = {}
    for kind, indices in SERVER.findall(text):
        for index in indices.split(", "):
            done.setdefault(index, set()).add(kind)
    for index, kinds in done.items():
        outcomes = kinds & OUTCOMES
        if len(outcomes - {"merged"}) > 1 or {"dropped", "merged"} <= outcomes:
            found.append(f"message {index}: {sorted(outcomes)}")
    if "diverges  nowhere" in text:
        found += [word for word in ("  cause ", "  owner ", "diverges from") if word in text]
    if "other (likely)" in text:
        found.append("a cause that is not known is likely")
    return found


def check(report: ReplayReport) -> None:
    for turn in report.policies[0].turns:
        for shown in re.split(r"^turn ", written(draw_turn, report, turn.turn), flags=re.M)[1:]:
            assert contradictions(shown) == [], shown


@pytest.mark.parametrize("name", ["claude-code-messages", "codex-responses"])
def test_no_two_lines_of_a_turn_contradict_each_other(name: str) -> None:
    policies = ["omlx", "flyto-mlx", "vllm-mlx", "vllm"]
    check(replayed(fixtures.transcript(name), "strict", policies, "prompt+output"))


@pytest.mark.slow
@pytest.mark.parametrize("template", ["strict", "in-place", "moving", "dropping"])
@pytest.mark.parametrize("name", ["claude-code-messages", "codex-responses", "chat"])
def test_nor_under_any_policy(name: str, template: str) -> None:
    check(replayed(fixtures.transcript(name), template, list(POLICIES), "prompt+output"))


@pytest.mark.parametrize("name", ["counter", "gitword", "rewind-crash", "river", "new_ids", "title_request"])
def test_nor_of_small_sessions(name: str) -> None:
    check(replayed(SESSIONS / f"{name}.jsonl", "strict", ["omlx", "vllm", "llama-cpp"], "prompt+output"))


def test_a_message_that_is_shortened_and_moved_is_not_dropped() -> None:
    report = replayed(fixtures.transcript("claude-code-messages"), "strict", ["vllm-mlx"])
    shown = written(draw_turn, report, 1)
    assert "hoisted message 1: moved into the first system message" in shown
    assert "shortened the system prompt and message 1: the server leaves out the line" in shown
    assert "dropped" not in shown


def test_turns_that_nothing_explains_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "RULES", ())
    report = replayed(SESSIONS / "counter.jsonl", "strict", ["omlx"], block_size=1)
    (policy,) = report.policies
    left = {turn.turn: turn.avoidable for turn in policy.turns if turn.avoidable}
    assert left
    shown = written(replay_text.draw, report)
    line = next(line for line in shown.splitlines() if line.startswith("Not explained: "))
    assert f"{sum(left.values()):,} of {policy.totals.avoidable:,} avoidable tokens" in line
    for turn, tokens in left.items():
        assert f"turn {turn} ({tokens:,})" in line
        in_full = written(draw_turn, report, turn)
        assert f"{tokens:,} avoidable, of which {tokens:,} are not explained" in in_full
        assert "other (not known): none of the known causes was proved" in in_full


def test_many_turns_that_nothing_explains() -> None:
    report = replayed(SESSIONS / "counter.jsonl", "strict", ["omlx"], block_size=1)
    (policy,) = report.policies
    turns = tuple(
        replace(policy.turns[0], turn=number, avoidable=number, explained=0) for number in range(1, 21)
    )
    shown = written(replay_text.draw, replace(report, policies=(replace(policy, turns=turns),)))
    line = next(line for line in shown.splitlines() if line.startswith("Not explained: "))
    assert "in turn 20 (20), turn 19 (19)" in line
    assert line.endswith("and 8 more (36).")


def test_what_is_explained_is_not_named() -> None:
    for causes in (True, False):
        report = replayed(SESSIONS / "counter.jsonl", "strict", ["omlx"], block_size=1, causes=causes)
        assert report.policies[0].totals.avoidable
        assert "ot explained" not in written(replay_text.draw, report)
