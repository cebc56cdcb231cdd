"""Token sequences that share memory where they begin alike, and compare fast there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..tokenization.tokens import common_prefix_ids

if TYPE_CHECKING:
    from ..tokenization.tokens import Ids

_CHUNK = 1024


@dataclass(frozen=True, slots=True, eq=False)
class TokenSequence:
    """Token ids as bytes, which compare at once; those made `like` one another share equal chunks.

    Attributes:
        chunks: the ids as int32, 1024 in each but the last, which has fewer or is missing.
        length: number of ids.
    """

    chunks: tuple[bytes, ...]
    length: int

    @classmethod
    def of(cls, ids: Ids, like: TokenSequence | None = None) -> TokenSequence:
        """Return the sequence of `ids`, shape `(n,)`, with the chunks of `like` where they are equal."""
        known = like.chunks if like else ()
        chunks = [ids[at : at + _CHUNK].astype(np.int32).tobytes() for at in range(0, len(ids), _CHUNK)]
        for number, (old, new) in enumerate(zip(known, chunks, strict=False)):
            if old == new:
                chunks[number] = old
        return cls(tuple(chunks), len(ids))

    def common(self, other: TokenSequence) -> int:
        """Return the length of the longest common prefix."""
        for number, (mine, theirs) in enumerate(zip(self.chunks, other.chunks, strict=False)):
            if mine != theirs:
                return number * _CHUNK + common_prefix_ids(_ids(mine), _ids(theirs))
        return min(self.length, other.length)

    def prefix(self, length: int) -> TokenSequence:
        """Return the first `length` ids, sharing memory."""
        whole, rest = divmod(length, _CHUNK)
        chunks = self.chunks[:whole]
        if rest:
            chunks = (*chunks, _ids(self.chunks[whole])[:rest].tobytes())
        return TokenSequence(chunks, length)

    def __getitem__(self, at: int) -> int:
        return int(_ids(self.chunks[at // _CHUNK])[at % _CHUNK])

    def before(self, other: TokenSequence) -> bool:
        """Tell whether it sorts before another, as tuples of numbers do."""
        same = self.common(other)
        if same == min(self.length, other.length):
            return self.length < other.length
        return self[same] < other[same]


def _ids(chunk: bytes) -> Ids:
    return np.frombuffer(chunk, np.int32)
