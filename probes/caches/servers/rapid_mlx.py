"""Rapid-MLX's memory-sized cache: whole prompts, sorted by their tokens."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from ..base import NO_MARKS, Block, Match, PrefixCache, PromptBoundaries, last_position
from ..hashes import recipe
from ..kind import CacheKind, CacheSettings, of_blocks, of_sequences, only_trimmable
from ..prefix_lookup import longest_continuation, longest_prefix, neighbour
from ..sequence_cache import End, SequenceCache, SequenceEntry
from ..sequences import TokenSequence

if TYPE_CHECKING:
    from ...tokenization.tokens import Ids

ROOT = b"rapid-mlx-root"
#: Tokens per block of the paged cache.
BLOCK_SIZE = 64


class RapidMlxCache(SequenceCache):
    """Rapid-MLX's default cache: equal, shorter, longer and parting prompts, recurrent layers from
    checkpoints.

    Source: raullenchai/Rapid-MLX 0.16.10 (October 2026), `memory_cache.py`, `hybrid_state_checkpoints.py` and
    `scheduler.py`; the lookup was run beside this one on random sequences without a difference, what is
    stored was read (docs/servers.md, section 4; docs/caches.md).
    """

    kind = "rapid-mlx"
    drops_prefixes = False
    max_entries = 1000
    #: The most sequences whose layers cannot be cut; the server's default for such models.
    max_uncut = 8
    max_checkpoints = 4
    stride = 2048
    #: Tokens before a turn's end at which its checkpoint is; the next turn may be tokenized otherwise there.
    margin = 8
    #: A checkpoint as near to a prompt's end as this stands for the prompt.
    max_gap = 64
    #: Tokens that a prompt shares with a stored one, beyond what it gets, for a checkpoint where they part.
    min_shared = 1024
    _shared_end = 0

    @cached_property
    def _anchors(self) -> set[int]:
        """The ends of turns at which prefills from nothing stopped; they are kept."""
        return set()

    def lift_limits(self) -> None:
        """Keep every sequence from now on, those whose layers cannot be cut as well."""
        super().lift_limits()
        self.max_uncut = sys.maxsize

    def _find(self, prompt: TokenSequence) -> tuple[SequenceEntry | None, int]:
        shared = self._shared(prompt)
        for entry, common in shared:
            if common == entry.length == prompt.length and self._cuttable(entry):
                return entry, prompt.length - 1
        prefix, most = longest_prefix(shared, prompt)
        longer = longest_continuation(shared, prompt)
        if longer is not None:
            if self._cuttable(longer):
                return longer, prompt.length - 1
            position = last_position(longer.checkpoints, prompt.length)
            if position > most:
                # The server finds the state at the prompt's end, cannot give up a token, and starts anew.
                return longer, position if position < prompt.length else 0
        near, common = neighbour(shared, prompt)
        if near is not None:
            position = common if self._cuttable(near) else last_position(near.checkpoints, common)
            if position > most:
                return near, position if position < prompt.length else 0
        return prefix, most

    def match(self, ids: Ids, marks: PromptBoundaries = NO_MARKS) -> Match:
        """Return what the server takes over of a prompt, and note where it stops for what others share."""
        prompt = TokenSequence.of(ids)
        shared = min(max((common for _, common in self._shared(prompt)), default=0), len(ids) - 1)
        match = super().match(ids, marks)
        worth = not self.layers.trimmable and shared - match.reused >= self.min_shared
        self._shared_end = shared if worth else 0
        return match

    def _boundary(self, marks: PromptBoundaries) -> int:
        """Return where a prefill stops so that the next turn can go on from there; 0 for nowhere."""
        return max(0, marks.turn_end - self.margin)

    def _ends(self, length: int, reused: int, marks: PromptBoundaries) -> tuple[End, ...]:
        prompt = length if marks.prompt_tokens is None else marks.prompt_tokens
        if self.layers.trimmable:
            return tuple((end, "") for end in sorted({prompt, length}))
        ends = {length: ""}
        boundary = self._boundary(marks)
        if boundary <= reused or prompt - boundary > self.max_gap:
            ends[prompt] = ""
        if reused < self._shared_end < prompt:
            ends[self._shared_end] = ""
        if reused < boundary < prompt:
            ends[boundary] = "boundary"
        return tuple(sorted(ends.items()))

    def _snapshots(self, sequence: TokenSequence, match: Match, marks: PromptBoundaries) -> Iterable[int]:
        boundary = self._boundary(marks)
        cold = not any(block.snapshot for block in match.blocks)
        if cold and boundary:
            self._anchors.add(boundary)
        newest = max((block.end for block in match.blocks if block.snapshot), default=0)
        inner = {at for at in (boundary, self._shared_end) if match.reused < at < sequence.length}
        stops = [match.reused, *sorted(inner), sequence.length]
        positions = []
        for start, end in pairwise(stops):
            for at in range(start + self.stride, end, self.stride):
                if at - newest >= self.stride:
                    positions.append(at)
                    newest = at
            if end == boundary:
                positions.append(end)
                newest = end
        return positions

    def _inherited(self, blocks: tuple[Block, ...]) -> tuple[int, ...]:
        # The end of a whole sequence is where that one goes on from, but no checkpoint of those that continue
        # it.
        whole = blocks and any(entry.blocks[-1] is blocks[-1] and not entry.kind for entry in self._entries)
        return super()._inherited(blocks[:-1] if whole else blocks)

    def _thinned(self, old: list[int], new: list[int]) -> list[int]:
        """Keep four checkpoints: the one closest behind another goes, but no anchor and not the newest."""
        kept: list[int] = []
        for at in (*old, *new):
            kept.append(at)
            if len(kept) > self.max_checkpoints:
                gaps = [(at - before, at) for before, at in zip([0, *kept], kept[:-1], strict=False)]
                kept.remove(min(gap for gap in gaps if gap[1] not in self._anchors)[1])
        return kept

    def _insert(self, entry: SequenceEntry) -> None:
        equal = next((other for other in self._begun(entry) if other.length == entry.length), None)
        if equal is not None:
            self._use(equal, entry.ids)
            return
        self._make_room(entry)
        if not self._cuttable(entry):
            uncut = [other for other in self._entries if not self._cuttable(other)]
            for other in uncut[: max(0, len(uncut) - self.max_uncut)]:
                self._evict(other)


def _paged(settings: CacheSettings) -> PrefixCache:
    return of_blocks(only_trimmable(settings), BLOCK_SIZE, named=recipe(root=ROOT))


KINDS = (
    CacheKind(RapidMlxCache.kind, of_sequences(RapidMlxCache)),
    CacheKind("rapid-mlx:paged", _paged),
)
