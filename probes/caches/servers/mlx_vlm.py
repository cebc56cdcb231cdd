"""mlx-vlm's APC cache: blocks, or a few whole prompts of models whose layers cannot all be cut."""

from __future__ import annotations

from hashlib import sha256

import numpy as np

from ..base import PrefixCache, PromptBoundaries, last_position
from ..kind import CacheKind, CacheSettings, of_blocks, of_sequences
from ..sequence_cache import End, SequenceCache, SequenceEntry
from ..sequences import TokenSequence

BLOCK_SIZE = 16
_U64 = (1 << 64) - 1


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


class MlxVlmSnapshots(SequenceCache):
    """Snapshots of the last two prompts, each without its last token, reused where a prompt begins with one.

    Source: Blaizzy/mlx-vlm 0.7.10 (October 2026), `apc.py`; read (docs/servers.md, section 6;
    docs/caches.md). Plain layers are kept in blocks of 16.
    """

    kind = "mlx-vlm"
    drops_prefixes = False
    max_entries = 2
    #: What is shorter is not stored.
    min_tokens = 16

    def reusable(self, shared: int, length: int) -> int:
        """Return the end of the snapshot stored last, if it is shared and within the prompt."""
        return last_position((self._last.length if self._last else 0,), min(shared, length - 1))

    def _resume(self, entry: SequenceEntry, prompt: TokenSequence) -> int:
        return entry.length if entry.ids.common(prompt) == entry.length < prompt.length else 0

    def _ends(self, length: int, reused: int, marks: PromptBoundaries) -> tuple[End, ...]:
        prompt = length if marks.prompt_tokens is None else marks.prompt_tokens
        return ((prompt - 1, ""),) if prompt - 1 >= self.min_tokens else ()


def _make(settings: CacheSettings) -> PrefixCache:
    if settings.layers.trimmable:
        return of_blocks(settings, BLOCK_SIZE, named=apc_recipe, full_hit="drop-block")
    return of_sequences(MlxVlmSnapshots)(settings)


# No other size is known to be used.
KINDS = (CacheKind(MlxVlmSnapshots.kind, _make, block_sizes=(BLOCK_SIZE,)),)
