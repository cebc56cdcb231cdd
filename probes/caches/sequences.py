"""Token sequences that share memory where they begin alike, and compare fast there."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np

from ..tokenization.tokens import common_prefix_ids

if TYPE_CHECKING:
    from ..tokenization.tokens import Ids

_CHUNK = 512


class _Chunk:
    """So many ids behind a beginning. There is one object for each beginning, so that `is` compares all."""

    __slots__ = ("__weakref__", "before", "ids")

    def __init__(self, before: _Chunk | None, ids: bytes) -> None:
        self.before = before
        self.ids = ids


_CHUNKS: WeakValueDictionary[tuple[_Chunk | None, bytes], _Chunk] = WeakValueDictionary()


@dataclass(frozen=True, slots=True, eq=False)
class TokenSequence:
    """Token ids; sequences share the chunks with which they begin alike.

    Attributes:
        chunks: the ids, as many in each as a chunk has.
        rest: the ids behind them as bytes of int32, fewer than a chunk has.
        length: number of ids.
    """

    chunks: tuple[_Chunk, ...]
    rest: bytes
    length: int

    @classmethod
    def of(cls, ids: Ids) -> TokenSequence:
        """Return the sequence of `ids`, shape `(n,)`."""
        chunks: list[_Chunk] = []
        before = None
        for at in range(0, len(ids) - _CHUNK + 1, _CHUNK):
            key = before, ids[at : at + _CHUNK].astype(np.int32).tobytes()
            chunk = _CHUNKS.get(key)
            if chunk is None:
                chunk = _CHUNKS[key] = _Chunk(*key)
            chunks.append(chunk)
            before = chunk
        rest = ids[len(chunks) * _CHUNK :].astype(np.int32).tobytes()
        return cls(tuple(chunks), rest, len(ids))

    def common(self, other: TokenSequence) -> int:
        """Return the length of the longest common prefix."""
        mine, theirs = self.chunks, other.chunks
        most = min(len(mine), len(theirs))
        alike = most
        if most and mine[most - 1] is not theirs[most - 1]:
            alike = bisect_left(range(most), True, key=lambda at: mine[at] is not theirs[at])
        return alike * _CHUNK + common_prefix_ids(self._ids(alike), other._ids(alike))

    def prefix(self, length: int) -> TokenSequence:
        """Return the first `length` ids, sharing memory."""
        whole, rest = divmod(length, _CHUNK)
        return TokenSequence(self.chunks[:whole], self._ids(whole)[:rest].tobytes(), length)

    def __getitem__(self, at: int) -> int:
        return int(self._ids(at // _CHUNK)[at % _CHUNK])

    def before(self, other: TokenSequence, common: int | None = None) -> bool:
        """Tell whether it sorts before another, as tuples of numbers do.

        Args:
            other: the other.
            common: the length of their longest common prefix, where it is known.
        """
        same = self.common(other) if common is None else common
        if same == min(self.length, other.length):
            return self.length < other.length
        return self[same] < other[same]

    def _ids(self, chunk: int) -> Ids:
        return np.frombuffer(self.chunks[chunk].ids if chunk < len(self.chunks) else self.rest, np.int32)
