"""llama.cpp's server: the tokens in a slot, context checkpoints, and prompts put aside in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from .base import Block, CacheStatistics, Marks, Match
from .entries import PLAIN, Entry, EntryCache
from .layers import Layers
from .sequences import TokenSequence

#: `--cache-ram`, in bytes.
CACHE_RAM = 8192 << 20


class LlamaCppCache(EntryCache):
    """One slot at token granularity. Where layers cannot be cut it goes back to the last checkpoint, or to
    nothing.

    Source: ggml-org/llama.cpp, `tools/server/server-context.cpp` and `server-task.cpp` as public copies had
    them in autumn 2026; read (docs/servers.md, section 9; docs/caches.md). A slot that would lose more than
    half of its tokens is put aside first, and a prompt put aside comes back if it beats the slot both in how
    much of it is kept and in how much of the new prompt it covers.

    Args:
        layers: what the model's layers keep.
        max_checkpoints: `--ctx-checkpoints`.
        min_step: `--checkpoint-min-step`; 256 in some versions.
        micro_batch: `--ubatch-size`.
        capacity_bytes: `--cache-ram`, which the slot itself does not count towards; None for the server's 8
            GiB where `bytes_per_token` is known, else for no limit.
        bytes_per_token: as of `EntryCache`.
        snapshot_bytes: as of `EntryCache`.
    """

    kind = "llama.cpp"

    def __init__(
        self,
        layers: Layers = PLAIN,
        *,
        max_checkpoints: int = 32,
        min_step: int = 8192,
        micro_batch: int = 512,
        capacity_bytes: int | None = None,
        bytes_per_token: int | None = None,
        snapshot_bytes: int = 0,
    ) -> None:
        if capacity_bytes is None and bytes_per_token is not None:
            capacity_bytes = CACHE_RAM
        super().__init__(
            layers,
            capacity_bytes=capacity_bytes,
            bytes_per_token=bytes_per_token,
            snapshot_bytes=snapshot_bytes,
        )
        self.max_checkpoints = max_checkpoints
        self.min_step = min_step
        self.micro_batch = micro_batch
        self._slot: Entry | None = None

    @property
    def statistics(self) -> CacheStatistics:
        """The counts so far, the slot included."""
        counts = super().statistics
        if self._slot is None:
            return counts
        return replace(counts, blocks=counts.blocks + 1, bytes=counts.bytes + self._slot.nbytes)

    def _find(self, prompt: TokenSequence) -> tuple[Entry | None, int]:
        if self._slot is not None and prompt.length:
            kept = self._slot.ids.common(prompt)
            if kept < self._slot.length / 2:
                self._put_aside(self._slot)
                self._slot = self._better(prompt, kept)
        return self._slot, self._resume(self._slot, prompt) if self._slot else 0

    def _better(self, prompt: TokenSequence, kept: int) -> Entry | None:
        """Return what the slot holds next: a prompt put aside that beats it, or what it held."""
        slot = self._slot
        assert slot is not None
        share, most = kept / slot.length, kept
        best = None
        for entry in self._entries:
            common = entry.ids.common(prompt)
            part = common / entry.length
            if part >= 0.25 and part > share and common > most:
                best, share, most = entry, part, common
        if best is None:
            return slot
        self._remove(best)
        return best

    def _put_aside(self, slot: Entry) -> None:
        """Keep a slot's prompt, unless one that is kept begins with it; those that it begins with go."""
        if any(other.ids.common(slot.ids) == slot.length for other in self._entries):
            return
        for other in self._begun(slot):
            self._remove(other)
        self._make_room(slot)

    def _snapshots(self, sequence: TokenSequence, match: Match, marks: Marks) -> Iterable[int]:
        prompt = sequence.length if marks.prompt_tokens is None else marks.prompt_tokens
        kept = [block.end for block in match.blocks if block.snapshot]
        newest = max(kept, default=None)
        positions = set()
        for start in marks.user_starts:
            last = start == marks.user_starts[-1]
            if start > match.reused and (last or newest is None or start > newest + self.min_step):
                positions.add(start)
                newest = start
        return positions | {prompt - 4 - self.micro_batch, prompt - 4}

    def _thinned(self, blocks: Sequence[Block]) -> Sequence[Block]:
        kept = [block.end for block in blocks if block.snapshot][-self.max_checkpoints :]
        return [replace(block, snapshot=block.end in kept) for block in blocks]

    def _inherited(self, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
        # The end of the slot's old sequence is no checkpoint: its state was there because it was live.
        if blocks and self._slot is not None and blocks[-1].end == self._slot.length:
            return (*blocks[:-1], replace(blocks[-1], snapshot=False))
        return blocks

    def _use(self, entry: Entry, prompt: TokenSequence) -> None:
        """Do nothing: the slot is what was used last."""

    def _insert(self, entry: Entry) -> None:
        self._slot = entry
