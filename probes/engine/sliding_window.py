"""K and V of attention that looks back over the last tokens only.

Both kinds hold more than they need after several tokens ran at once, and drop it with the next ones. Only the
last window is copied: what lies before it is masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .arrays import copied
from .kv import KeysAndValues

if TYPE_CHECKING:
    from .arrays import Arrays


class RotatingKV(KeysAndValues):
    """A sliding window, as in Gemma and gpt-oss: a `RotatingKVCache` that keeps no first tokens.

    After a single token its buffer is a ring.
    """

    @property
    def kind(self) -> str:
        """The kind with its window."""
        return f"rotating:{self.window}"

    @property
    def window(self) -> int:
        """The window in tokens."""
        return int(self._cache.max_size)

    def trim(self, start: int, end: int) -> Arrays:
        """Return copies of K and V of positions `start` to `end`, which the buffer must still hold."""
        ordered = tuple(self._cache._temporal_order(array) for array in self.arrays())
        oldest = self.offset - ordered[0].shape[-2]
        return copied(ordered, start - oldest, end - oldest)

    def put(self, pieces: Sequence[Arrays], length: int) -> None:
        """Fill the cache with K and V of the last positions before `length`."""
        super().put(pieces, length)
        self._cache._idx = self._cache.keys.shape[-2]


class ChunkedKV(KeysAndValues):
    """Attention within chunks of fixed size, as in Llama 4: a `ChunkedKVCache`."""

    @property
    def kind(self) -> str:
        """The kind with its chunk size."""
        return f"chunked:{self.window}"

    @property
    def window(self) -> int:
        """The chunk's size in tokens."""
        return int(self._cache.chunk_size)

    def trim(self, start: int, end: int) -> Arrays:
        """Return copies of K and V of positions `start` to `end`, which the buffer must still hold."""
        oldest = self._cache.start_position
        return super().trim(start - oldest, end - oldest)

    def put(self, pieces: Sequence[Arrays], length: int) -> None:
        """Fill the cache with K and V of the last positions before `length`."""
        super().put(pieces, length)
        self._cache.start_position = length - self._cache.keys.shape[-2]


def drops_too_much(cache: Any) -> bool:
    """Tell whether a `ChunkedKVCache` takes padding for tokens when it drops old ones, as in mlx-lm 0.31.

    It then loses tokens that the current chunk still needs, more or fewer of them as the prompt is split.
    """
    import mlx.core as mx

    padded = type(cache)(2)
    padded.keys = padded.values = mx.zeros((1, 1, 4, 1))
    padded.offset = 1
    padded.maybe_trim_front()
    return bool(padded.start_position)
