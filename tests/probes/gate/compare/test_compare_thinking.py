"""Comparing verdicts on reasoning, and the findings that the gate follows."""

from tplaudit.probes.gate.compare.compare_thinking import compare_findings, compare_thinking
from tplaudit.probes.gate.observe.behaviour import FollowedFinding
from tplaudit.probes.gate.subject import Subject

USUAL = Subject("thinking", "reasoning_content")


def test_reasoning_by_what_history_keeps() -> None:
    (difference,) = compare_thinking({USUAL: "keeps"}, {USUAL: "tool-loop-only"})
    assert (difference.kind, difference.rule) == ("regressed", "reasoning-history")
    (difference,) = compare_thinking({USUAL: "never"}, {USUAL: "keeps"})
    assert difference.kind == "fixed"


def test_a_switch_that_is_gone() -> None:
    switched = Subject("thinking", "reasoning_content", "preserve_thinking=true")
    base = {USUAL: "drops", switched: "keeps"}
    (difference,) = compare_thinking(base, {USUAL: "drops"})
    assert (difference.kind, difference.subject) == ("regressed", switched)
    (new,) = compare_thinking({USUAL: "keeps"}, {USUAL: "keeps", switched: "drops"})
    assert (new.kind, new.subject) == ("changed", switched)


def test_findings_that_come_and_go() -> None:
    (worse,) = compare_findings({}, {FollowedFinding("template-clock"): 3})
    assert (worse.kind, worse.rule, worse.line) == ("regressed", "template-clock", 3)
    (better,) = compare_findings({FollowedFinding("probe-false-positive", "omlx"): None}, {})
    assert (better.kind, better.rule, str(better.subject)) == (
        "fixed",
        "probe-false-positive",
        "findings/omlx",
    )
