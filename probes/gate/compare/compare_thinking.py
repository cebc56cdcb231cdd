"""Comparing two reports on reasoning, and the other findings of the probe that the gate follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..observe.behaviour import FollowedFinding
from ..subject import Subject
from .differences import UNKNOWN, Difference, compare_ranks

#: From best to worst: the more of the reasoning history keeps, the better.
HISTORY_RANKS = {"keeps": 0, "tool-loop-only": 1, "drops": 2, "never": 3}
_PERSISTS_RANKS = {"stays": 0, "does not stay": 2}
_GENERATION = "generation-prompt"


def compare_thinking(base: Mapping[Subject, str], head: Mapping[Subject, str]) -> Iterator[Difference]:
    """Yield the verdicts on reasoning that became others.

    A verdict with a switch that one of the templates does not have is compared with the one without it, and
    what the verdicts without a switch say already is not repeated.
    """
    for subject in dict.fromkeys((*base, *head)):
        usual = subject.usual
        was, now = (side.get(subject, side.get(usual, UNKNOWN)) for side in (base, head))
        if subject != usual and (was, now) == (base.get(usual), head.get(usual)):
            continue
        generation = subject.name == _GENERATION
        if generation and UNKNOWN in (was, now):
            continue  # there is no generation prompt to compare; that it is gone is said of the prompts
        kind = compare_ranks(was, now, _PERSISTS_RANKS if generation else HISTORY_RANKS)
        if kind == "regressed" and subject not in base:
            kind = "changed"  # a switch that is new: nothing that anybody used became worse
        if kind is not None:
            rule = "generation-prompt-not-in-history" if generation else "reasoning-history"
            yield Difference(kind, rule, subject, was, now)


def compare_findings(
    base: Mapping[FollowedFinding, int | None], head: Mapping[FollowedFinding, int | None]
) -> Iterator[Difference]:
    """Yield the findings that appeared or vanished."""
    for finding in dict.fromkeys((*base, *head)):
        if finding not in base:
            yield Difference("regressed", finding.rule, finding.subject, "absent", "found", head[finding])
        elif finding not in head:
            yield Difference("fixed", finding.rule, finding.subject, "found", "absent", base[finding])
