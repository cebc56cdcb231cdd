"""The state of recurrent layers (gated delta nets, Mamba, short convolutions): mlx-lm's `ArraysCache`.

It sums up all tokens so far in arrays of fixed size, so it can be copied at a position but not cut back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import mlx.core as mx

    from .arrays import Arrays


class RecurrentState:
    """The arrays of one layer; those that it has not used yet are None.

    Args:
        cache: an `ArraysCache`.
    """

    kind = "recurrent"
    window = 0
    offset = None

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def arrays(self) -> list[mx.array]:
        """Return the arrays in use."""
        return [array for array in self._cache.cache if array is not None]

    def trim(self, start: int, end: int) -> Arrays:
        """Return a copy of the state, whatever the positions."""
        return _copies(self._cache.cache)

    def put(self, pieces: Sequence[Arrays], length: int) -> None:
        """Fill the cache with its one snapshot."""
        self._cache.cache = list(_copies(pieces[0]))


def _copies(arrays: Sequence[mx.array | None]) -> Arrays:
    """Return arrays of their own: a convolution's state is a slice of its whole input until it is copied."""
    import mlx.core as mx

    return tuple(None if array is None else mx.contiguous(array) for array in arrays)
