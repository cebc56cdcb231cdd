"""Blocks of plain attention: slices of the K and V that mlx-lm's `KVCache` objects hold.

Works on the public attributes `keys`, `values` and `offset` of a cache, which mean the same in mlx-lm 0.28 to
0.33; `state` does not. K and V have shape `(1, heads, positions, width)`, padded beyond `offset`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import mlx.core as mx


@dataclass(frozen=True, slots=True)
class KVBlock:
    """The state of one block.

    Attributes:
        layers: K and V of each layer, each `(1, heads, block size, width)`.
    """

    layers: tuple[tuple[mx.array, mx.array], ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all K and V."""
        return sum(keys.nbytes + values.nbytes for keys, values in self.layers)


def unsupported(caches: Iterable[Any]) -> tuple[str, ...]:
    """Return the class names of the caches that these blocks cannot hold, each once."""
    from mlx_lm.models.cache import KVCache

    return tuple(dict.fromkeys(type(cache).__name__ for cache in caches if type(cache) is not KVCache))


def arrays(caches: Iterable[Any]) -> list[mx.array]:
    """Return all K and V that caches hold, for `mx.eval`."""
    return [array for cache in caches for array in (cache.keys, cache.values) if array is not None]


def capture(caches: Sequence[Any], starts: Iterable[int], block_size: int) -> tuple[KVBlock, ...]:
    """Return copies of blocks of a filled cache.

    Args:
        caches: one `KVCache` per layer.
        starts: the position of each block's first token.
        block_size: tokens per block.
    """
    import mlx.core as mx

    # A slice that is not copied keeps the whole buffer alive.
    blocks = tuple(
        KVBlock(
            tuple(
                (
                    mx.contiguous(cache.keys[..., start : start + block_size, :]),
                    mx.contiguous(cache.values[..., start : start + block_size, :]),
                )
                for cache in caches
            )
        )
        for start in starts
    )
    mx.eval([block.layers for block in blocks])
    return blocks


def restore(caches: Sequence[Any], blocks: Sequence[KVBlock], length: int) -> None:
    """Put blocks into empty caches, which then are as if `length` tokens had been prefilled.

    Args:
        caches: one empty `KVCache` per layer.
        blocks: a prompt's blocks from its first token on.
        length: tokens to keep, at most what the blocks hold.
    """
    import mlx.core as mx

    if not blocks:
        return
    for layer, cache in enumerate(caches):
        cache.keys = mx.concatenate([block.layers[layer][0] for block in blocks], axis=2)
        cache.values = mx.concatenate([block.layers[layer][1] for block in blocks], axis=2)
        cache.offset = cache.keys.shape[2]
        cache.trim(cache.offset - length)
    mx.eval(arrays(caches))
