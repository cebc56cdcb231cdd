"""Comparing two placement matrices by the ranks of docs/json.md, section "probe"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...placements.findings import RULE_OF_VERDICT
from ...placements.mid_system import PlacementReport
from ...placements.verdicts import RANKS as VERDICT_RANKS
from ...placements.verdicts import Verdict
from ..subject import Subject
from .differences import UNKNOWN, Difference, compare_ranks

RANKS: dict[str, int] = {verdict: rank for verdict, rank in VERDICT_RANKS.items()}


def compare_placements(
    base: Mapping[Subject, PlacementReport], head: Mapping[Subject, PlacementReport]
) -> Iterator[Difference]:
    """Yield the placements at which something else becomes of a system turn.

    Rows with a switch, or with messages passed on as given, exist only where they differ from the usual row,
    which takes the place of one that is missing; what the usual rows say already is not repeated. Nor is
    what could not be tested only because something else becomes of an earlier system turn.
    """
    found = list(_differing(base, head))
    if any(each.row is not None and each.row.shape == "plain" for each in found):
        found = [each for each in found if not _follows(each)]
    yield from found


def _follows(difference: Difference) -> bool:
    unusual = difference.row is not None and difference.row.shape != "plain"
    return unusual and UNKNOWN in (difference.base, difference.head)


def _differing(
    base: Mapping[Subject, PlacementReport], head: Mapping[Subject, PlacementReport]
) -> Iterator[Difference]:
    for subject in dict.fromkeys((*base, *head)):
        usual = subject.usual
        if usual not in base or usual not in head:
            continue
        old, new = base.get(subject, base[usual]), head.get(subject, head[usual])
        was, now = verdict(old), verdict(new)
        if subject != usual and (was, now) == (verdict(base[usual]), verdict(head[usual])):
            continue
        kind = compare_ranks(was, now, RANKS)
        if kind is None:
            continue
        decisive = was if kind == "fixed" else now
        rule = RULE_OF_VERDICT.get(decisive) or RULE_OF_VERDICT[was]
        line = old.line if kind == "fixed" and new.line is None else new.line
        detail = old.error if kind == "fixed" else new.error
        yield Difference(kind, rule, subject, was, now, line, detail, row=old)


def verdict(row: PlacementReport) -> Verdict:
    """Return a row's verdict; `in-place` where only the turn behind the run changes the earlier prompt."""
    return "in-place" if row.verdict == "unstable" and row.successor_moves else row.verdict
