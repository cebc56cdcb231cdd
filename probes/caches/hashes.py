"""Names of cache blocks: a hash of the block's tokens and of everything before them.

Two blocks have one name exactly when they, and all blocks before them, hold the same tokens, so a dictionary
of names is enough to find the longest stored prefix. The recipe is oMLX's (docs/servers.md, section 1.16;
`compute_block_hash` in jundot/omlx), which fusion-mlx, Rapid-MLX and vllm-mlx use with roots of their own
(docs/servers.md, sections 3 to 5). It has no separators between its fields: a model name that ends in
`omlx-root` could in theory meet another model's chain, which only convention prevents. Other recipes stand in
the modules of their servers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from ..tokenization.tokens import Ids

#: Names one block: its token ids, and the name of the block before it or None for a prompt's first block.
BlockHasher: TypeAlias = Callable[[tuple[int, ...], bytes | None], bytes]

ROOT = b"omlx-root"


def recipe(model_name: str = "", root: bytes = ROOT) -> BlockHasher:
    """Return oMLX's recipe, whose names are of 32 bytes.

    Args:
        model_name: keeps models apart that share a cache.
        root: stands for the parent of a first block.
    """
    return partial(_named, model_name.encode(), root)


def chain(ids: Ids, block_size: int, *, named: BlockHasher, known: Sequence[bytes] = ()) -> tuple[bytes, ...]:
    """Return the names of all full blocks of a sequence; a remainder shorter than a block has none.

    Args:
        ids: token ids, shape `(n,)`.
        block_size: tokens per block.
        named: the recipe.
        known: names of the first blocks, where they were computed before.
    """
    names = list(known)
    start = len(names) * block_size
    numbers = ids[start:].tolist()
    parent = names[-1] if names else None
    for at in range(0, len(numbers) - block_size + 1, block_size):
        parent = named(tuple(numbers[at : at + block_size]), parent)
        names.append(parent)
    return tuple(names)


def _named(salt: bytes, root: bytes, tokens: tuple[int, ...], parent: bytes | None) -> bytes:
    # NumPy integers print differently from Python's: `tokens` are Python's.
    return sha256(salt + (parent or root) + str(tokens).encode()).digest()
