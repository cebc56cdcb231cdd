"""vLLM's blocks, named by a hash of a pickle (docs/servers.md, section 10), and states of recurrent layers.

With recurrent layers a block has as many tokens as occupy no less than the state of one such layer, and that
is kept only where a step of a prefill ends at the end of a block, or a reply passes one (vllm-project/vllm
0.33.0, `_align_hybrid_block_size` of `vllm/platforms/interface.py`, `_mamba_block_aligned_split` of
`vllm/v1/core/sched/scheduler.py`; read).

The names decide which blocks are found no differently from `hashes`; they are here so that those in the
server's logs can be told.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from hashlib import sha256
from typing import Any

from ..base import PrefixCache
from ..hashes import BlockHasher
from ..kind import CacheKind, CacheSettings, of_blocks

BLOCK_SIZE = 16
#: Tokens per block of Qwen3.5 4B, for recurrent models whose config does not tell.
HYBRID_BLOCK_SIZE = 528
#: `--max-num-batched-tokens` on a GPU of less than 70 GiB, and on a CPU.
STEP = "2048"
#: Sizes to try for `--block-size`, which takes any; hybrid models get about 528 (Qwen3.5 4B) to 2,096.
BLOCK_SIZES = (16, 32, 64, 128, 256, 528, 784, 1056, 2096)


def vllm_none_hash(seed: str) -> bytes:
    """Return what stands for the parent of a first block in vLLM when `PYTHONHASHSEED` is `seed`."""
    return sha256(pickle.dumps(seed, protocol=5)).digest()


def vllm_hash(tokens: tuple[int, ...], parent: bytes, extra_keys: tuple[Any, ...] | None = None) -> bytes:
    """Return the name of a block in vLLM, 32 bytes.

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


def _make(settings: CacheSettings) -> PrefixCache:
    if not settings.layers.recurrent:
        return of_blocks(settings, BLOCK_SIZE, named=vllm_recipe(), full_hit="drop-block")
    least, unit = settings.aligned_block or HYBRID_BLOCK_SIZE, settings.usual_size or BLOCK_SIZE
    size = settings.block_size or unit * -(-least // unit)
    return of_blocks(
        replace(settings, block_size=None, usual_size=None),
        size,
        named=vllm_recipe(),
        full_hit="drop-block",
        step=int(settings.options.get("step", STEP)),
    )


KINDS = (
    CacheKind(
        "vllm", _make, sized=True, options={"step": ("2048", "8192", "16384")}, block_sizes=BLOCK_SIZES
    ),
)
