"""Comparing two reports on reasoning, and the other findings of the probe that the gate follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .differences import UNKNOWN, Difference, compare_ranks

#: From best to worst: the more of the reasoning history keeps, the better.
HISTORY_RANKS = {"keeps": 0, "tool-loop-only": 1, "drops": 2, "never": 3}
_PERSISTS_RANKS = {"stays": 0, "does not stay": 2}
_GENERATION = "generation-prompt"


def compare_thinking(base: Mapping[str, str], head: Mapping[str, str]) -> Iterator[Difference]:
    """Yield the verdicts on reasoning that became others.

    A verdict with a switch that one of the templates does not have is compared with the one without it, and
    what the verdicts without a switch tell already is not repeated.
    """
    for subject in dict.fromkeys((*base, *head)):
        about = subject.partition("@")[0]
        was, now = (side.get(subject, side.get(about, UNKNOWN)) for side in (base, head))
        if subject != about and (was, now) == (base.get(about), head.get(about)):
            continue
        generation = about == _GENERATION
        if generation and UNKNOWN in (was, now):
            continue  # there is no generation prompt to compare; that it vanished is told of the prompts
        kind = compare_ranks(was, now, _PERSISTS_RANKS if generation else HISTORY_RANKS)
        if kind == "regressed" and subject not in base:
            kind = "changed"  # a switch that is new: nothing that anybody used became worse
        if kind is not None:
            rule = "generation-prompt-not-in-history" if generation else "reasoning-history"
            yield Difference(kind, rule, f"thinking/{subject}", was, now)


def compare_findings(base: Mapping[str, int | None], head: Mapping[str, int | None]) -> Iterator[Difference]:
    """Yield the findings that appeared or vanished."""
    for name in dict.fromkeys((*base, *head)):
        if (name in base) == (name in head):
            continue
        rule, _, about = name.partition(" ")
        subject = f"findings/{about or rule}"
        if name in head:
            yield Difference("regressed", rule, subject, "absent", "found", head[name])
        else:
            yield Difference("fixed", rule, subject, "found", "absent", base[name])
