"""The verdict on one placement, from the prompts alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..text import common_prefix

Verdict = Literal["in-place", "unstable", "moved", "duplicated", "dropped", "raises", "not-evaluated"]

#: From best to worst; `not-evaluated` has no rank.
RANKS: dict[Verdict, int] = {
    "in-place": 0,
    "unstable": 1,
    "moved": 2,
    "duplicated": 2,
    "raises": 3,
    "dropped": 4,
}


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and the character of the prompt that shows it.

    Attributes:
        verdict: what the template does with the run.
        offset: of the run's text; of the misplaced or second one, or of the first character that differs from
            the earlier prompt; None where the run is not in the prompt.
    """

    verdict: Verdict
    offset: int | None


def worse(one: Verdict, than: Verdict) -> bool:
    """Tell whether a verdict ranks below another; never where either was not evaluated."""
    return one in RANKS and than in RANKS and RANKS[one] > RANKS[than]


def judge(before: str, prompt: str, run: Sequence[str], predecessor: str, successor: str | None) -> Judgement:
    """Judge what became of a run of system texts.

    Args:
        before: the prompt of the messages up to the run, without a generation prompt.
        prompt: the prompt with the run, and with its successor if it has one.
        run: the texts of the run, in order.
        predecessor: the text of the message before the run; it stands in `before`.
        successor: the text of the message after the run.
    """
    places = [occurrences(prompt, text) for text in run]
    if not all(places):
        return Judgement("dropped", None)
    first = occurrences(prompt, predecessor)
    last = occurrences(prompt, successor) if successor is not None else []
    for place in sorted(offset for offsets in places for offset in offsets):
        if (first and place < first[0]) or (last and place > last[-1]):
            return Judgement("moved", place)
    if [offsets[0] for offsets in places] != sorted(offsets[0] for offsets in places):
        return Judgement("moved", places[0][0])
    for offsets in places:
        if len(offsets) > 1:
            return Judgement("duplicated", offsets[1])
    kept = before.rstrip()
    if prompt.startswith(kept):
        return Judgement("in-place", places[0][0])
    return Judgement("unstable", common_prefix(kept, prompt))


def occurrences(prompt: str, text: str) -> list[int]:
    """Return the offsets of a text in a prompt, without regard to case where it is found in no other way."""
    if text not in prompt:
        prompt = prompt.lower()
    offsets = []
    at = prompt.find(text)
    while at >= 0:
        offsets.append(at)
        at = prompt.find(text, at + len(text))
    return offsets
