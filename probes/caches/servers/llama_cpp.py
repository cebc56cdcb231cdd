"""llama.cpp's server: the tokens in a slot, context checkpoints, and prompts put aside in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..base import Block, CacheStatistics, Match, PromptBoundaries, Room
from ..kind import CacheKind, of_sequences
from ..sequence_cache import SequenceCache, SequenceEntry, without_payloads
from ..sequences import TokenSequence


class LlamaCppCache(SequenceCache):
    """One slot at token granularity. Where layers cannot be cut it goes back to the last checkpoint, or to
    nothing.

    Source: ggml-org/llama.cpp, `tools/server/server-context.cpp` and `server-task.cpp` of autumn 2026 (commit
    001d906a), defaults of `common/common.h`; read (docs/servers.md, section 9; docs/caches.md). A slot that
    would lose more than half of its tokens is put aside first, and a prompt put aside comes back if it beats
    the slot both in how much of it is kept and in how much of the new prompt it covers. `--cache-ram` is what
    prompts put aside may occupy; the slot itself does not count towards it.
    """

    kind = "llama.cpp"
    room: Room = "slot"
    usual_capacity = 8192 << 20
    #: `--ctx-checkpoints`.
    max_checkpoints = 32
    #: `--checkpoint-min-step`.
    min_step = 8192
    #: `--batch-size`, in tokens.
    batch = 2048
    #: `--ubatch-size`, in tokens.
    micro_batch = 512
    _slot: SequenceEntry | None = None

    @property
    def statistics(self) -> CacheStatistics:
        """The counts so far, the slot included."""
        counts = super().statistics
        if self._slot is None:
            return counts
        return replace(counts, blocks=counts.blocks + 1, bytes=counts.bytes + self._slot.nbytes)

    def _find(self, prompt: TokenSequence) -> tuple[SequenceEntry | None, int]:
        if self._slot is not None and prompt.length:
            kept = self._slot.ids.common(prompt)
            if kept < self._slot.length / 2:
                self._put_aside(self._slot)
                self._slot = self._better(prompt, kept)
        return self._slot, self._resume(self._slot, prompt) if self._slot else 0

    def _better(self, prompt: TokenSequence, kept: int) -> SequenceEntry | None:
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

    def _put_aside(self, slot: SequenceEntry) -> None:
        """Keep a slot's prompt, unless one that is kept begins with it; those that it begins with go."""
        if any(other.ids.common(slot.ids) == slot.length for other in self._entries):
            return
        for other in self._begun(slot):
            self._remove(other)
        self._make_room(slot)

    def _snapshots(self, sequence: TokenSequence, match: Match, marks: PromptBoundaries) -> Iterable[int]:
        prompt = sequence.length if marks.prompt_tokens is None else marks.prompt_tokens
        newest = max(self._inherited(match.blocks), default=None)
        checkpoints = []
        end = match.reused
        while end < prompt:
            admitted = [at for at in marks.user_headers if self._admits(at, newest, marks)]
            start, end = end, self._batch_end(end, prompt, admitted)
            # The state before a batch is copied, and only what was computed by then can be.
            if start and (start in admitted or prompt < end + self.micro_batch):
                newest = start
                checkpoints.append(start)
        return checkpoints

    def _admits(self, header: int, newest: int | None, marks: PromptBoundaries) -> bool:
        """Tell whether a user turn is far enough behind the newest checkpoint; the last one always is."""
        return header == marks.user_headers[-1] or newest is None or header > newest + self.min_step

    def _batch_end(self, start: int, prompt: int, headers: Sequence[int]) -> int:
        """Return where a batch ends: full, before a user turn, or a little before the prompt's end."""
        before_end = (prompt - min(self.batch, distance) for distance in (4 + self.micro_batch, 4))
        return min(at for at in (start + self.batch, prompt, *before_end, *headers) if at > start)

    def _thinned(self, old: list[int], new: list[int]) -> list[int]:
        """Make room for each new one: earlier turns' that are close together go first, then the oldest."""
        recent: list[int] = []
        most = self.max_checkpoints - 1
        for position in new:
            at = 1
            while len(old) + len(recent) >= most and at < len(old):
                if old[at] <= old[at - 1] + self.min_step:
                    old = [*old[:at], *old[at + 1 :]]
                else:
                    at += 1
            over = max(0, len(old) + len(recent) - most)
            old, recent = old[over:], recent[max(0, over - len(old)) :]
            old = [each for each in old if each != position]
            recent.append(position)
        return [*old, *recent]

    def _inherited(self, blocks: tuple[Block, ...]) -> tuple[int, ...]:
        # The end of the slot's old sequence is no checkpoint: its state was there because it was live.
        live = blocks and self._slot is not None and blocks[-1].end == self._slot.length
        return super()._inherited(blocks[:-1] if live else blocks)

    def _use(self, entry: SequenceEntry, prompt: TokenSequence) -> None:
        """Do nothing: the slot is what was used last."""

    def _insert(self, entry: SequenceEntry) -> None:
        was = self._slot
        if was is not None and was.ids.common(entry.ids) < was.length:
            # What the slot held behind the shared beginning is overwritten.
            self._dropped.append((without_payloads(was), self._statistics.lookups))
        self._slot = entry


KINDS = (CacheKind(LlamaCppCache.kind, of_sequences(LlamaCppCache)),)
