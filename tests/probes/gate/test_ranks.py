"""How a change of a verdict is classified."""

from __future__ import annotations

import dataclasses
from itertools import permutations

import pytest
from tplaudit.probes.gate.compare.compare_placements import RANKS, compare_placements, placement_id
from tplaudit.probes.gate.compare.compare_thinking import compare_findings, compare_thinking
from tplaudit.probes.gate.compare.differences import compare_ranks
from tplaudit.probes.placements.mid_system import PlacementReport

ROW = PlacementReport("user", "tail", True, "system", False, "plain", {}, "in-place")


@pytest.mark.parametrize(("base", "head"), list(permutations([*RANKS, "not-evaluated"], 2)))
def test_rising_is_fixed_and_falling_regressed(base: str, head: str) -> None:
    kind = compare_ranks(base, head, RANKS)
    if head == "not-evaluated":
        assert kind == "regressed"
    elif base == "not-evaluated":
        assert kind == ("fixed" if head in ("in-place", "unstable") else "changed")
    elif {base, head} == {"moved", "duplicated"}:
        assert kind == "changed"
    else:
        assert kind == ("fixed" if RANKS[head] < RANKS[base] else "regressed")


def test_the_contract_s_examples() -> None:
    assert compare_ranks("raises", "dropped", RANKS) == "regressed"
    assert compare_ranks("raises", "moved", RANKS) == "fixed"
    assert compare_ranks("in-place", "in-place", RANKS) is None
    assert compare_ranks("not-evaluated", "not-evaluated", RANKS) is None


def test_unstable_for_the_successor_s_sake_counts_as_in_place() -> None:
    unstable = dataclasses.replace(ROW, placement="before-user", verdict="unstable", successor_moves=True)
    fine = dataclasses.replace(unstable, verdict="in-place", successor_moves=None)
    assert list(compare_placements([fine], [unstable])) == []
    (difference,) = compare_placements([fine], [dataclasses.replace(unstable, successor_moves=False)])
    assert (difference.kind, difference.rule) == ("regressed", "system-unstable")


def test_rows_with_a_switch_are_compared_with_the_plain_one_where_they_are_missing() -> None:
    switched = dataclasses.replace(ROW, kwargs={"think": True}, verdict="dropped")
    (difference,) = compare_placements([ROW], [ROW, switched])
    assert (difference.kind, difference.subject) == ("regressed", "user/tail@think=true")
    assert list(compare_placements([ROW, switched], [ROW, switched])) == []
    dropped = dataclasses.replace(ROW, verdict="dropped")
    assert [each.subject for each in compare_placements([ROW], [dropped, switched])] == ["user/tail"]


def test_ids_are_those_of_probe_show() -> None:
    from tplaudit.cli.probe import read_case
    from tplaudit.probes.placements.placements import FURTHER, PLAIN

    for case in PLAIN + FURTHER:
        row = dataclasses.replace(
            ROW,
            preceding=case.preceding,
            placement=case.placement,
            leading=case.leading,
            role=case.role,
            tools=case.tools,
            shape=case.shape,
        )
        assert read_case(placement_id(row)) == case


def test_reasoning_by_what_history_keeps() -> None:
    (difference,) = compare_thinking({"reasoning_content": "keeps"}, {"reasoning_content": "tool-loop-only"})
    assert (difference.kind, difference.rule) == ("regressed", "reasoning-history")
    (difference,) = compare_thinking({"reasoning_content": "never"}, {"reasoning_content": "keeps"})
    assert difference.kind == "fixed"


def test_a_switch_that_is_gone() -> None:
    base = {"reasoning_content": "drops", "reasoning_content@preserve_thinking=true": "keeps"}
    (difference,) = compare_thinking(base, {"reasoning_content": "drops"})
    assert (difference.kind, difference.subject) == (
        "regressed",
        "thinking/reasoning_content@preserve_thinking=true",
    )


def test_findings_that_come_and_go() -> None:
    (worse,) = compare_findings({}, {"template-clock": 3})
    assert (worse.kind, worse.rule, worse.line) == ("regressed", "template-clock", 3)
    (better,) = compare_findings({"probe-false-positive omlx": None}, {})
    assert (better.kind, better.rule, better.subject) == ("fixed", "probe-false-positive", "findings/omlx")
