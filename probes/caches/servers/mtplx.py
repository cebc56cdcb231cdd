"""MTPLX's session bank: whole sequences, and states along the way where layers cannot be cut."""

from __future__ import annotations

from collections.abc import Iterable

from ..base import Match, PromptBoundaries, last_position
from ..kind import CacheKind, of_sequences
from ..prefix_lookup import longest_prefix
from ..sequence_cache import End, SequenceCache, SequenceEntry
from ..sequences import TokenSequence


class MtplxCache(SequenceCache):
    """The session bank: the longest stored sequence that a prompt goes on from, else what it shares with one.

    Source: youssofal/MTPLX 2.12.2 (October 2026), `session_bank.py`, `checkpoint_anchors.py` and
    `generation.py`; read (docs/servers.md, section 7; docs/caches.md). Recurrent layers go back to states
    that were copied after every chunk of a prefill and a little before its end.
    """

    kind = "mtplx"
    max_entries = 24
    #: Tokens of a prefill's chunk.
    stride = 2048
    #: Tokens that a prompt has to share with a sequence from which it parts.
    min_shared = 512
    #: Likewise where it parts in the last few tokens of the sequence, and how many those are.
    min_shared_at_end = 64
    end = 8
    #: How far before a prompt's end its last state is copied, and the chunk's own grid for short chunks.
    before_end = 64
    grid = 256
    #: New tokens from which on a prompt is stored before its reply is there.
    min_new = 1024

    def reusable(self, shared: int, length: int) -> int:
        """Return how much an unlimited cache takes over; see `SequenceCache.reusable`."""
        entry = self._last
        whole = entry is not None and entry.length <= min(shared, length - 1)
        return super().reusable(shared, length) if whole or self._near(entry, shared) else 0

    def _find(self, prompt: TokenSequence) -> tuple[SequenceEntry | None, int]:
        shared = self._shared(prompt)
        best, most = longest_prefix(shared, prompt)
        for entry, common in shared:
            if self._near(entry, common) and (position := self._resume(entry, prompt)) > most:
                best, most = entry, position
        return best, most

    def _near(self, entry: SequenceEntry | None, common: int) -> bool:
        """Tell whether a prompt shares enough with a sequence from which it parts."""
        at_end = entry is not None and entry.length - common <= self.end
        least = self.min_shared
        if entry is not None and at_end:
            least = min(self.min_shared_at_end, max(1, entry.length - self.end))
        return common >= least

    def _ends(self, length: int, reused: int, marks: PromptBoundaries) -> tuple[End, ...]:
        prompt = length if marks.prompt_tokens is None else marks.prompt_tokens
        early = prompt < length and prompt - reused >= self.min_new
        return ((prompt, ""), (length, "")) if early else ((length, ""),)

    def _snapshots(self, sequence: TokenSequence, match: Match, marks: PromptBoundaries) -> Iterable[int]:
        end = (sequence.length if marks.prompt_tokens is None else marks.prompt_tokens) - 1
        chunks = list(range(match.reused + self.stride, end, self.stride))
        start = last_position(chunks, end) or match.reused
        # The last point of the chunk's grid, unless there is room for one nearer to the end.
        point = start + (end - 1 - start) // self.grid * self.grid
        if end - point > self.before_end and end - self.before_end - start >= self.grid <= point - start:
            point = end - self.before_end
        return [*chunks, *((point,) if point - start >= self.grid else ())]


KINDS = (CacheKind(MtplxCache.kind, of_sequences(MtplxCache)),)
