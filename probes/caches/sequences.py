"""Token sequences that share memory where they begin alike, and compare fast there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..tokens import common_prefix_ids

if TYPE_CHECKING:
    from ..tokens import Ids

_CHUNK = 1024


@dataclass(frozen=True, slots=True, eq=False)
class TokenSequence:
    """Token ids in chunks; equal chunks of sequences made `like` one another are one object.

    Attributes:
        chunks: all of 1024 ids but the last, which has fewer or is missing.
        length: number of ids.
    """

    chunks: tuple[Ids, ...]
    length: int

    @classmethod
    def of(cls, ids: Ids, like: TokenSequence | None = None) -> TokenSequence:
        """Return the sequence of `ids`, shape `(n,)`, with the chunks of `like` where they are equal."""
        known = like.chunks if like else ()
        chunks = []
        for number, start in enumerate(range(0, len(ids), _CHUNK)):
            chunk = ids[start : start + _CHUNK]
            if number < len(known) and np.array_equal(known[number], chunk):
                chunks.append(known[number])
            else:
                chunks.append(np.array(chunk, np.int32))
        return cls(tuple(chunks), len(ids))

    def common(self, other: TokenSequence) -> int:
        """Return the length of the longest common prefix."""
        shared = 0
        for mine, theirs in zip(self.chunks, other.chunks, strict=False):
            if mine is theirs:
                shared += len(mine)
                continue
            same = common_prefix_ids(mine, theirs)
            shared += same
            if same < _CHUNK:
                break
        return shared

    def prefix(self, length: int) -> TokenSequence:
        """Return the first `length` ids, sharing memory."""
        whole, rest = divmod(length, _CHUNK)
        chunks = self.chunks[:whole]
        if rest:
            chunks = (*chunks, self.chunks[whole][:rest])
        return TokenSequence(chunks, length)

    def __getitem__(self, at: int) -> int:
        return int(self.chunks[at // _CHUNK][at % _CHUNK])

    def before(self, other: TokenSequence) -> bool:
        """Tell whether it sorts before another, as tuples of numbers do."""
        same = self.common(other)
        if same == min(self.length, other.length):
            return self.length < other.length
        return self[same] < other[same]
