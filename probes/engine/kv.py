"""K and V of full attention: mlx-lm's `KVCache`, and `QuantizedKVCache`, which has three arrays for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .arrays import copied, joined

if TYPE_CHECKING:
    import mlx.core as mx

    from .arrays import Arrays


class KeysAndValues:
    """K and V as the model computes them, each `(1, heads, positions, width)`, padding included.

    Args:
        cache: one of mlx-lm's cache objects.
    """

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    @property
    def offset(self) -> int:
        """How many tokens it has seen."""
        return int(self._cache.offset)

    def arrays(self) -> list[mx.array]:
        """Return K and V as they stand in the buffer."""
        return [array for array in (self._cache.keys, self._cache.values) if array is not None]

    def trim(self, start: int, end: int) -> Arrays:
        """Return copies of all arrays for positions `start` to `end`."""
        return copied(tuple(self.arrays()), start, end)

    def put(self, pieces: Sequence[Arrays], length: int) -> None:
        """Fill the cache with K and V of the last positions before `length`."""
        self._cache.keys, self._cache.values = joined(pieces)
        self._cache.offset = length


class PlainKV(KeysAndValues):
    """K and V of all positions, padded beyond `offset`: a `KVCache`."""

    kind = "plain"
    window = None


class QuantisedKV(KeysAndValues):
    """Quantised K and V, each as numbers packed into 32 bits, scales and biases: a `QuantizedKVCache`."""

    window = None

    @property
    def kind(self) -> str:
        """The kind with its bits per number."""
        return f"quantised:{self._cache.bits}"

    def arrays(self) -> list[mx.array]:
        """Return the arrays of K, then those of V, padding included."""
        return [*(self._cache.keys or ()), *(self._cache.values or ())]

    def put(self, pieces: Sequence[Arrays], length: int) -> None:
        """Fill the cache with K and V of `length` positions."""
        arrays = joined(pieces)
        half = len(arrays) // 2
        self._cache.keys, self._cache.values = arrays[:half], arrays[half:]
        self._cache.offset = length
