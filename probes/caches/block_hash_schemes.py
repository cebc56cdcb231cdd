"""How other servers than oMLX's relatives name their blocks.

They decide which blocks are found no differently from `hashes`; they are here so that names in a server's
logs and files can be told.
"""

from __future__ import annotations

import pickle
from hashlib import sha256
from typing import Any

import numpy as np

from .hashes import BlockHasher

_U64 = (1 << 64) - 1


def token_digest(tokens: tuple[int, ...]) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of tokens, four big-endian bytes each.

    Rapid-MLX 0.16.10 identifies a prefix by that of all its tokens, vllm-mlx 0.6.0 in its legacy lookup each
    chunk by its own (docs/servers.md, sections 4 and 5).
    """
    return sha256(b"".join(token.to_bytes(4, "big") for token in tokens)).hexdigest()[:16]


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


def apc_recipe(tokens: tuple[int, ...], parent: bytes | None) -> bytes:
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


def vllm_recipe(seed: str = "0") -> BlockHasher:
    """Return vLLM's recipe in a process whose `PYTHONHASHSEED` is `seed`."""
    none_hash = vllm_none_hash(seed)

    def named(tokens: tuple[int, ...], parent: bytes | None) -> bytes:
        return vllm_hash(tokens, parent or none_hash)

    return named
