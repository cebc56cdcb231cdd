"""K and V of consecutive positions, as arrays: parts of them copied, and put together again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import mlx.core as mx

Arrays: TypeAlias = "tuple[mx.array | None, ...]"


def positions(layer: Arrays) -> int:
    """Return how many tokens' K and V are there."""
    return layer[0].shape[-2] if layer and layer[0] is not None else 0


def sliced(layer: Arrays, start: int, end: int) -> Arrays:
    """Return some positions of K and V, not copied."""
    return tuple(None if array is None else array[..., start:end, :] for array in layer)


def copied(layer: Arrays, start: int, end: int) -> Arrays:
    """Return copies, not yet evaluated, of some positions: a mere slice keeps the whole buffer alive."""
    import mlx.core as mx

    return tuple(None if array is None else mx.contiguous(array) for array in sliced(layer, start, end))


def joined(pieces: Sequence[Arrays]) -> list[mx.array]:
    """Return K and V of consecutive positions put together."""
    import mlx.core as mx

    return [
        mx.concatenate([array for array in same if array is not None], axis=-2)
        for same in zip(*pieces, strict=True)
    ]
