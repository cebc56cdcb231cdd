"""What a replay is going to prefill, counted before a model runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..cost.cost_model import CostModel
from .replay_report import TurnReport


@dataclass(frozen=True, slots=True)
class PrefillPlan:
    """The prefills of a replay (counted).

    Attributes:
        policies: the policies, in the order of the replay.
        turns: for each turn and policy, the tokens to compute and those in the cache before them; None where
            nothing renders.
    """

    policies: tuple[str, ...]
    turns: tuple[tuple[tuple[int, int] | None, ...], ...]

    @classmethod
    def of(cls, policies: Sequence[str], turns: Iterable[tuple[TurnReport, ...]]) -> PrefillPlan:
        """Return the plan that a replay without a model makes.

        Args:
            policies: the policies.
            turns: each turn under each of them, in the same order.
        """
        return cls(tuple(policies), tuple(tuple(map(_prefill, turn)) for turn in turns))

    @property
    def tokens(self) -> Mapping[str, int]:
        """The tokens to compute under each policy."""
        counted = dict.fromkeys(self.policies, 0)
        for turn in self.turns:
            for policy, prefill in zip(self.policies, turn, strict=True):
                counted[policy] += prefill[0] if prefill else 0
        return counted

    def seconds(self, cost: CostModel, first: int = 1, last: int | None = None) -> float:
        """Return the predicted seconds of some turns under all policies.

        Args:
            cost: what predicts them.
            first: the first of the turns, counted from 1.
            last: the last of them; None for the last there is.
        """
        return sum(
            cost.seconds(*prefill) for turn in self.turns[first - 1 : last] for prefill in turn if prefill
        )


def _prefill(turn: TurnReport) -> tuple[int, int] | None:
    if turn.reprefill is None or turn.reused is None:
        return None
    return turn.reprefill, turn.reused
