"""One difference between two behaviours, and how verdicts of a rank are compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from ...placements.mid_system import PlacementReport
from ..subject import Subject
from .edits import Edit

Kind = Literal["fixed", "regressed", "changed", "cosmetic"]

#: From worst to least.
KINDS: tuple[Kind, ...] = ("regressed", "changed", "fixed", "cosmetic")
#: A verdict that has no rank: nothing could be tested.
UNKNOWN = "not-evaluated"


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference, before equal ones are put together.

    Attributes:
        kind: what it means.
        rule: id of the rule that it is about.
        subject: what differs.
        base: what it was, in a word; None where there was nothing.
        head: what it is.
        line: line of the head's template that is responsible, where known.
        detail: what else there is to say, such as the text of an error.
        edit: how the prompt changed.
        row: the placement of the base that it is about.
    """

    kind: Kind
    rule: str
    subject: Subject
    base: str | None
    head: str | None
    line: int | None = None
    detail: str | None = None
    edit: Edit | None = None
    row: PlacementReport | None = None


def compare_ranks(base: str, head: str, ranks: Mapping[str, int]) -> Kind | None:
    """Say what it means that a verdict changed; None where that means nothing.

    A verdict without a rank is never fine: becoming one is a regression. What could not be tested before is
    fixed where it is good now, and changed where it is bad: nobody knows whether it was better.

    Args:
        base: the verdict before.
        head: the verdict now.
        ranks: the ranks of verdicts, the best first from 0.
    """
    if base == head:
        return None
    if head not in ranks:
        return "regressed" if base in ranks else None
    if base not in ranks:
        return "fixed" if ranks[head] <= 1 else "changed"
    if ranks[head] == ranks[base]:
        return "changed"
    return "fixed" if ranks[head] < ranks[base] else "regressed"


def reported_placements(differences: Iterable[Difference]) -> frozenset[str]:
    """Return the placements, as `tool/tail`, that differences of the template itself are about."""
    return frozenset(each.row.pair for each in differences if each.row is not None and not each.subject.view)
