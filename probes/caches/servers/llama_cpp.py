"""llama.cpp's server: the tokens in its slots, context checkpoints, and prompts put aside in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from ...models.layers import Layers
from ...models.sizes import Sizes
from ..base import NO_MARKS, Block, CacheStatistics, Match, PrefixCache, PromptBoundaries, Room
from ..kind import CacheKind, CacheSettings
from ..sequence_cache import SequenceCache, SequenceEntry, without_payloads
from ..sequences import TokenSequence

if TYPE_CHECKING:
    from ...tokenization.tokens import Ids

_Value = TypeVar("_Value")
_PLAIN = Layers()
#: `--slot-prompt-similarity`, as one part of so many.
_SIMILAR = 10
#: Slots where `--parallel` is not given.
SLOTS = 4


class LlamaCppCache(SequenceCache):
    """Slots at token granularity. Where layers cannot be cut a slot goes back to its last checkpoint, or to
    nothing.

    Source: ggml-org/llama.cpp b11434, `tools/server/server-context.cpp` (`get_available_slot`,
    `create_checkpoint`), `server-task.cpp` (`server_prompt_cache`) and `server.cpp`, defaults of
    `common/common.h`; read (docs/servers.md, section 9; docs/caches.md). A prompt goes to the slot that holds
    most of it, if that is more than a tenth of the prompt, else to the least recently used one. A slot that
    was taken for its age, or would lose more than half of its tokens, is put aside first, and a prompt put
    aside comes back if it beats the slot both in how much of it is kept and in how much of the new prompt it
    covers. The other slots are put aside when a request begins; where their number was not set, they are
    emptied then, because they share one pool of cells. `--cache-ram` is what prompts put aside may occupy;
    the slots themselves do not count towards it.

    Args:
        layers: as of `SequenceCache`.
        capacity_bytes: as of `SequenceCache`.
        sizes: as of `SequenceCache`.
        slots: number of slots.
        pooled: whether idle slots are emptied; None for where there are as many as without `--parallel`.
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

    def __init__(
        self,
        layers: Layers = _PLAIN,
        *,
        capacity_bytes: int | None = None,
        sizes: Sizes | None = None,
        slots: int = SLOTS,
        pooled: bool | None = None,
    ) -> None:
        super().__init__(layers, capacity_bytes=capacity_bytes, sizes=sizes)
        self._pooled = slots == SLOTS if pooled is None else pooled
        self._slots: tuple[SequenceEntry | None, ...] = (None,) * slots
        # When each slot was used last, and which one the latest prompt went to.
        self._used: tuple[int, ...] = (-1,) * slots
        self._at = slots - 1

    @property
    def statistics(self) -> CacheStatistics:
        """The counts so far, the slots included."""
        counts = super().statistics
        held = [slot.nbytes for slot in self._slots if slot is not None]
        return replace(counts, blocks=counts.blocks + len(held), bytes=counts.bytes + sum(held))

    def why_not(self, shared: int, length: int) -> str:
        """Say why a prompt is not continued although it shares tokens with its predecessor."""
        if len(self._slots) > 1 and shared * _SIMILAR <= length:
            return (
                "the prompt shares no more than a tenth of its tokens with the slot, so that the server "
                "takes another one (--slot-prompt-similarity)"
            )
        return super().why_not(shared, length)

    def match(self, ids: Ids, marks: PromptBoundaries = NO_MARKS) -> Match:
        """Return what the slot of a prompt gives it; the other slots are left then."""
        match = super().match(ids, marks)
        if len(ids):
            self._leave_others()
        return match

    @property
    def _slot(self) -> SequenceEntry | None:
        """What the slot of the latest prompt holds."""
        return self._slots[self._at]

    def _find(self, prompt: TokenSequence) -> tuple[SequenceEntry | None, int]:
        if not prompt.length:
            return None, 0
        found = self._most_similar(prompt)
        kept = 0
        if found is None:
            oldest = min(self._used)
            self._at = max(at for at, used in enumerate(self._used) if used == oldest)
        else:
            self._at, kept = found
        slot = self._slot
        if found is None or (slot is not None and kept < slot.length / 2):
            if slot is not None:
                self._put_aside(slot)
                kept = slot.ids.common(prompt)
            self._fill(self._at, self._better(prompt, slot, kept))
        self._used = _with(self._used, self._at, max(self._used) + 1)
        slot = self._slot
        return slot, self._resume(slot, prompt) if slot else 0

    def _most_similar(self, prompt: TokenSequence) -> tuple[int, int] | None:
        """Return the slot that holds most of a prompt, the first one among equals, and how much that is."""
        best = None
        for at, slot in enumerate(self._slots):
            kept = slot.ids.common(prompt) if slot else 0
            if kept * _SIMILAR > prompt.length and (best is None or kept > best[1]):
                best = at, kept
        return best

    def _leave_others(self) -> None:
        """Put the other slots aside, and empty them where all slots share their cells."""
        for at, slot in enumerate(self._slots):
            if at != self._at and slot is not None:
                self._put_aside(slot)
                if self._pooled:
                    self._fill(at, None)
                    # It may come back, but only if enough of it is kept.
                    self._dropped.append((without_payloads(slot), self._statistics.lookups))

    def _fill(self, at: int, entry: SequenceEntry | None) -> None:
        self._slots = _with(self._slots, at, entry)

    def _better(self, prompt: TokenSequence, slot: SequenceEntry | None, kept: int) -> SequenceEntry | None:
        """Return what a slot holds next: a prompt put aside that beats what it held, or that."""
        share, most = kept / slot.length if slot else -1.0, kept
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
        if self.capacity_bytes is not None and slot.nbytes > self.capacity_bytes:
            self._make_room(slot)  # which refuses it
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
        self._fill(self._at, entry)


def _with(values: tuple[_Value, ...], at: int, value: _Value) -> tuple[_Value, ...]:
    """Return values with another one in one place."""
    return (*values[:at], value, *values[at + 1 :])


def _make(settings: CacheSettings) -> PrefixCache:
    return LlamaCppCache(
        settings.layers,
        capacity_bytes=settings.capacity_bytes,
        sizes=settings.sizes,
        slots=int(settings.options.get("slots", SLOTS)),
    )


KINDS = (CacheKind(LlamaCppCache.kind, _make, options={"slots": ("1", "2", "4", "8")}),)
