"""Seconds of prefill, predicted from what a replay counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prediction:
    """How long a model takes to prefill.

    Attributes:
        seconds: the seconds for a number of new tokens behind a number of reused ones.
        source: what that comes from, in words without a full stop.
    """

    seconds: Callable[[int, int], float]
    source: str

    def total(self, prefills: Iterable[tuple[int, int]]) -> float:
        """Return the predicted seconds of several prefills, each given as new and reused tokens."""
        return sum(self.seconds(tokens, depth) for tokens, depth in prefills)


def at_rate(rate: float) -> Prediction:
    """Return the crude prediction: every token takes as long as every other.

    Args:
        rate: tokens per second.
    """
    return Prediction(lambda tokens, depth: tokens / rate, f"{rate:g} tokens per second at every depth")
