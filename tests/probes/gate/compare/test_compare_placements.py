"""Comparing what becomes of system turns, placement by placement."""

import dataclasses

from tplaudit.probes.gate.compare import compare_placements
from tplaudit.probes.gate.compare.differences import Difference
from tplaudit.probes.gate.observe.behaviour import by_placement, placement
from tplaudit.probes.placements.mid_system import PlacementReport

ROW = PlacementReport("user", "tail", True, "system", False, "plain", {}, "in-place")


def compared(base: list[PlacementReport], head: list[PlacementReport]) -> list[Difference]:
    return list(compare_placements.compare_placements(by_placement(base), by_placement(head)))


def test_unstable_for_the_successor_s_sake_counts_as_in_place() -> None:
    unstable = dataclasses.replace(ROW, placement="before-user", verdict="unstable", successor_moves=True)
    fine = dataclasses.replace(unstable, verdict="in-place", successor_moves=None)
    assert compared([fine], [unstable]) == []
    (difference,) = compared([fine], [dataclasses.replace(unstable, successor_moves=False)])
    assert (difference.kind, difference.rule) == ("regressed", "system-unstable")


def test_rows_with_a_switch_are_compared_with_the_plain_one_where_they_are_missing() -> None:
    switched = dataclasses.replace(ROW, kwargs={"think": True}, verdict="dropped")
    (difference,) = compared([ROW], [ROW, switched])
    assert (difference.kind, str(difference.subject)) == ("regressed", "user/tail@think=true")
    assert compared([ROW, switched], [ROW, switched]) == []
    dropped = dataclasses.replace(ROW, verdict="dropped")
    assert [str(each.subject) for each in compared([ROW], [dropped, switched])] == ["user/tail"]


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
        assert read_case(str(placement(row))) == case
