"""Comparing two placement matrices by the ranks of docs/json.md, section "probe"."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from ...placements.mid_system import PlacementReport
from ...placements.verdicts import RANKS as VERDICT_RANKS
from ...placements.verdicts import Verdict
from ..rules import RULE_OF_VERDICT
from .differences import UNKNOWN, Difference, compare_ranks

Key = tuple[str, str]
RANKS: dict[str, int] = {verdict: rank for verdict, rank in VERDICT_RANKS.items()}


def compare_placements(
    base: Sequence[PlacementReport], head: Sequence[PlacementReport]
) -> Iterator[Difference]:
    """Yield the placements at which a system turn fares otherwise than it did.

    Rows with a switch, or with messages passed on as given, exist only where they differ from the plain row;
    so the plain row stands in for one that is missing, and what the plain rows tell already is not repeated.
    Nor is told what could not be tested only because of an earlier system turn that fares otherwise.
    """
    found = list(_differing(base, head))
    if any(each.place is not None and each.place.shape == "plain" for each in found):
        found = [each for each in found if not _follows(each)]
    yield from found


def _follows(difference: Difference) -> bool:
    unusual = difference.place is not None and difference.place.shape != "plain"
    return unusual and UNKNOWN in (difference.base, difference.head)


def _differing(base: Sequence[PlacementReport], head: Sequence[PlacementReport]) -> Iterator[Difference]:
    before, after = {_key(row): row for row in base}, {_key(row): row for row in head}
    for key in dict.fromkeys((*before, *after)):
        plain = (key[0], "")
        if plain not in before or plain not in after:
            continue
        old, new = before.get(key, before[plain]), after.get(key, after[plain])
        was, now = verdict(old), verdict(new)
        if key != plain and (was, now) == (verdict(before[plain]), verdict(after[plain])):
            continue
        kind = compare_ranks(was, now, RANKS)
        if kind is None:
            continue
        telling = was if kind == "fixed" else now
        rule = RULE_OF_VERDICT.get(telling) or RULE_OF_VERDICT[was]
        subject = f"{key[0]}@{key[1]}" if key[1] else key[0]
        line = old.line if kind == "fixed" and new.line is None else new.line
        detail = old.error if kind == "fixed" else new.error
        yield Difference(kind, rule, subject, was, now, line, detail, place=old)


def verdict(row: PlacementReport) -> Verdict:
    """Return a row's verdict; `in-place` where only the turn behind the run changes the earlier prompt."""
    return "in-place" if row.verdict == "unstable" and row.successor_moves else row.verdict


def placement_id(row: PlacementReport) -> str:
    """Return what `tplaudit probe --show` calls a placement."""
    words = [
        *([] if row.leading else ["no-leading"]),
        *(["developer"] if row.role == "developer" else []),
        *(["tools"] if row.tools and row.preceding != "tool" else []),
        *([] if row.shape == "plain" else [row.shape]),
    ]
    return ",".join((row.pair, *words))


def variant_id(row: PlacementReport) -> str:
    """Return what a row has beyond the plain matrix: a switch, `raw`, or nothing."""
    if row.profile == "raw":
        return "raw"
    return ",".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in row.kwargs.items()
    )


def _key(row: PlacementReport) -> Key:
    return (placement_id(row), variant_id(row))
