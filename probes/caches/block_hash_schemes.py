"""Names of cache blocks: a hash of the block's tokens and of everything before them.

Two blocks have one name exactly when they, and all blocks before them, hold the same tokens, so a dictionary
of names is enough to find the longest stored prefix. The first scheme is oMLX's (docs/servers.md, section
1.16; `compute_block_hash` in jundot/omlx), which fusion-mlx, Rapid-MLX and vllm-mlx use with roots of their
own (docs/servers.md, sections 3 to 5). It has no separators between its fields: a model name that ends in
`omlx-root` could in theory meet another model's chain, which only convention prevents. The others find the
same blocks; they are here so that names in a server's logs and files can be recognised.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from ..tokenization.tokens import Ids

#: Names one block: its token ids, and the name of the block before it or None for a prompt's first block.
BlockHasher: TypeAlias = Callable[[tuple[int, ...], bytes | None], bytes]

ROOT = b"omlx-root"
FUSION_ROOT = b"fusion-mlx-root"
RAPID_ROOT = b"rapid-mlx-root"
VLLM_MLX_ROOT = b"vllm-mlx-root"
_U64 = (1 << 64) - 1


def block_hash(
    tokens: Sequence[int] | Ids,
    parent: bytes | None = None,
    *,
    model_name: str | None = None,
    extra_keys: tuple[Any, ...] | None = None,
    root: bytes = ROOT,
) -> bytes:
    """Return the 32-byte name of one block.

    Args:
        tokens: the block's token ids, in order.
        parent: the name of the block before it, or None for a prompt's first block.
        model_name: keeps models apart that share a cache; empty means none.
        extra_keys: what the block's content depends on beside its tokens, such as an image's hash.
        root: stands for the parent of a first block.
    """
    # NumPy integers print differently from Python's, and the printed form is what is hashed.
    numbers = tuple(int(token) for token in tokens)
    return _named((model_name or "").encode(), root, extra_keys, numbers, parent)


def block_hasher(model_name: str | None = None, root: bytes = ROOT) -> BlockHasher:
    """Return oMLX's scheme for one model; the arguments are those of `block_hash`."""
    return partial(_named, (model_name or "").encode(), root, None)


def chain(
    ids: Ids,
    block_size: int,
    *,
    model_name: str | None = None,
    known: Sequence[bytes] = (),
    named: BlockHasher | None = None,
) -> tuple[bytes, ...]:
    """Return the names of all full blocks of a sequence; a remainder shorter than a block has none.

    Args:
        ids: token ids, shape `(n,)`.
        block_size: tokens per block.
        model_name: as in `block_hash`.
        known: names of the first blocks, where they were computed before.
        named: names one block; None for oMLX's way with `model_name`.
    """
    named = named or block_hasher(model_name)
    names = list(known)
    start = len(names) * block_size
    numbers = ids[start:].tolist()
    parent = names[-1] if names else None
    for at in range(0, len(numbers) - block_size + 1, block_size):
        parent = named(tuple(numbers[at : at + block_size]), parent)
        names.append(parent)
    return tuple(names)


def _named(
    salt: bytes,
    root: bytes,
    extra_keys: tuple[Any, ...] | None,
    tokens: tuple[int, ...],
    parent: bytes | None,
) -> bytes:
    """Return the digest; `tokens` are Python integers."""
    text = f"{tokens}{extra_keys}" if extra_keys else str(tokens)
    return sha256(salt + (parent or root) + text.encode()).digest()


def apc_hash(tokens: tuple[int, ...], parent: int = 0, extra: int = 0) -> int:
    """Return the name of a block in mlx-vlm's APC cache with `APC_HASH=sha256`, a signed 64-bit number.

    As of release 0.7.10 (docs/servers.md, section 6). Without that setting the server uses Python's own
    `hash((parent, tokens, extra))`.

    Args:
        tokens: the block's token ids.
        parent: the name of the block before it, 0 for a first block.
        extra: what the content depends on beside tokens, 0 for nothing.
    """
    digest = sha256((parent & _U64).to_bytes(8, "little"))
    digest.update(np.asarray(tokens, np.int32).tobytes())
    digest.update((extra & _U64).to_bytes(8, "little"))
    return int.from_bytes(digest.digest()[:8], "little", signed=True)


def apc_hasher(tokens: tuple[int, ...], parent: bytes | None) -> bytes:
    """Return `apc_hash` as eight little-endian bytes."""
    before = int.from_bytes(parent, "little", signed=True) if parent else 0
    return apc_hash(tokens, before).to_bytes(8, "little", signed=True)


def vllm_none_hash(seed: str) -> bytes:
    """Return what stands for the parent of a first block in vLLM when `PYTHONHASHSEED` is `seed`."""
    return sha256(pickle.dumps(seed, protocol=5)).digest()


def vllm_hash(tokens: tuple[int, ...], parent: bytes, extra_keys: tuple[Any, ...] | None = None) -> bytes:
    """Return the name of a block in vLLM, 32 bytes (docs/servers.md, section 10).

    It hashes a pickle, so it is the server's own only on the Python version that the server runs on.

    Args:
        tokens: the block's token ids.
        parent: the name of the block before it, or `vllm_none_hash`.
        extra_keys: what the content depends on beside tokens.
    """
    return sha256(pickle.dumps((parent, tokens, extra_keys), protocol=5)).digest()


def vllm_hasher(seed: str = "0") -> BlockHasher:
    """Return vLLM's scheme in a process whose `PYTHONHASHSEED` is `seed`."""
    none_hash = vllm_none_hash(seed)

    def named(tokens: tuple[int, ...], parent: bytes | None) -> bytes:
        return vllm_hash(tokens, parent or none_hash)

    return named
