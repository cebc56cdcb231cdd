"""The sequences that a cache stored, and which of them is closest to a prompt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..tokenization.tokens import common_prefix_ids

if TYPE_CHECKING:
    from ..tokenization.tokens import Ids


@dataclass(frozen=True, slots=True)
class Closest:
    """The stored sequence that shares most with a prompt, among equals the latest.

    Attributes:
        turn: the turn that stored it; None where nothing is stored.
        shared: token ids that both share.
        fully_matched: whether a stored sequence of that length is a prefix of the prompt.
    """

    turn: int | None
    shared: int
    fully_matched: bool


@dataclass(frozen=True, slots=True)
class _Stored:
    """A sequence as the beginning of an earlier one and its own tail."""

    turn: int
    parent: int | None
    start: int
    tail: Ids

    @property
    def length(self) -> int:
        return self.start + len(self.tail)


class StoredSequences:
    """Keeps of every sequence only what no earlier one begins with."""

    def __init__(self) -> None:
        self._stored: list[_Stored] = []
        self._places: dict[int, int] = {}
        self._looked_up: tuple[Ids, list[int]] | None = None
        self._last: tuple[Ids, list[int]] | None = None

    def sequence(self, turn: int) -> Ids:
        """Return the sequence that a turn stored, shape `(n,)`."""
        entry = self._stored[self._places[turn]]
        ids = np.empty(entry.length, np.int32)
        end = entry.length
        while True:
            if entry.start < end:
                ids[entry.start : end] = entry.tail[: end - entry.start]
                end = entry.start
            if entry.parent is None or not end:
                return ids
            entry = self._stored[entry.parent]

    def shared_with(self, ids: Ids, turns: Iterable[int]) -> int:
        """Return how many ids a prompt of shape `(n,)` shares at most with what some turns stored."""
        shared = self._shared(ids)
        return max((shared[self._places[turn]] for turn in turns), default=0)

    def closest(self, ids: Ids) -> Closest:
        """Find the closest stored sequence to a prompt of shape `(n,)`."""
        shared = self._shared(ids)
        if not shared:
            return Closest(None, 0, True)
        most = max(shared)
        equals = [entry for entry, count in zip(self._stored, shared, strict=True) if count == most]
        return Closest(equals[-1].turn, most, any(entry.length == most for entry in equals))

    def add(self, turn: int, ids: Ids) -> None:
        """Store a sequence of shape `(n,)`."""
        shared = self._shared(ids)
        start = max(shared, default=0)
        parent = shared.index(start) if shared else None
        self._places[turn] = len(self._stored)
        self._stored.append(_Stored(turn, parent, start, ids[start:].copy()))
        self._last = (ids, [*shared, len(ids)])
        self._looked_up = None

    def _shared(self, ids: Ids) -> list[int]:
        """Return for each stored sequence how many ids it shares with `ids`; found once for both askers."""
        if self._looked_up is None or self._looked_up[0] is not ids:
            self._looked_up = (ids, self._by_last(ids) or self._one_by_one(ids))
        return self._looked_up[1]

    def _by_last(self, ids: Ids) -> list[int] | None:
        """Tell it from what the last sequence shares with all others; None where that is not enough.

        Where `ids` shares `common` ids with the last one, what shares less with that one shares as much with
        `ids`, and what shares more shares `common`. What shares just as much may go on like `ids`.
        """
        if self._last is None:
            return None
        last, counts = self._last
        common = common_prefix_ids(last, ids)
        if any(
            count == common and entry.length > common
            for entry, count in zip(self._stored, counts, strict=True)
        ):
            return None
        return [min(count, common) for count in counts]

    def _one_by_one(self, ids: Ids) -> list[int]:
        shared: list[int] = []
        for entry in self._stored:
            before = shared[entry.parent] if entry.parent is not None else 0
            if before < entry.start:
                shared.append(before)
            else:
                shared.append(entry.start + common_prefix_ids(entry.tail, ids[entry.start :]))
        return shared
