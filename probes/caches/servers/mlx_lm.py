"""The prompt cache of mlx-lm's server: whole sequences, few of them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING

from ..base import Match, PromptBoundaries
from ..kind import CacheKind, of_sequences
from ..prefix_lookup import longest_prefix
from ..sequence_cache import End, SequenceCache, SequenceEntry
from ..sequences import TokenSequence

if TYPE_CHECKING:
    from ...tokenization.tokens import Ids

#: What gives way first.
ENTRY_KINDS = ("assistant", "user", "system")
_THINK_TAIL = 11
#: Tokens of the shortest sequence that a lookup takes.
_LEAST = 2


def segments(length: int, marks: PromptBoundaries) -> tuple[End, ...]:
    """Return the ends of the parts into which the server divides a prompt of `length` tokens, and their
    kinds.

    A prompt that does not end in a user turn is one part. Otherwise there are the leading system messages,
    what follows up to a think mark among the last 11 tokens, and the rest.
    """
    whole = ((length, "assistant"),)
    if not marks.ends_in_user:
        return whole
    ends = []
    system = marks.system_end if marks.system_end < length else 0
    if system > 0:
        ends.append((system, "system"))
    think = marks.think_start
    tail = think if think is not None and think >= length - _THINK_TAIL else length
    if system < tail:
        ends.append((tail, "user"))
    if tail < length:
        ends.append((length, "assistant"))
    return tuple(ends) or whole


class MlxLmCache(SequenceCache):
    """`LRUPromptCache` with the checkpoints that the server stores in it.

    Source: ml-explore/mlx-lm 0.32.2 (November 2026), `models/cache.py`, `server.py` and `generate.py`; run:
    the class is the reference in our tests, and the ends of segments were observed on its `BatchGenerator`
    (docs/servers.md, section 8; docs/caches.md). A lookup does not count as use. A sequence that ends with
    the prompt is trimmed by one token; where it cannot be, the server answers with an error, and here the
    next shorter sequence is taken.
    """

    kind = "mlx-lm"
    #: `--prompt-cache-size`.
    max_entries = 10
    #: Whether a prompt's last token is a part of its own, so that the state before it is stored too; so in
    #: 0.32.2, whatever role the last message has.
    last_token_apart = True

    def fetch(self, ids: Ids) -> int:
        """Return how many tokens the server's own lookup finds; all where a sequence ends with the prompt."""
        return self._fetch(TokenSequence.of(ids))[1]

    def reusable(self, shared: int, length: int) -> int:
        """Return how much an unlimited cache takes over; see `SequenceCache.reusable`."""
        found = super().reusable(shared, length)
        return 0 if found == 1 and self._last and not self._cuttable(self._last) else found

    def _find(self, prompt: TokenSequence) -> tuple[SequenceEntry | None, int]:
        entry, found = self._fetch(prompt)
        if entry is None or found < prompt.length:
            return entry, found
        if self._cuttable(entry):
            return entry, found - 1
        return longest_prefix(self._shared(prompt), prompt, _LEAST)

    def _fetch(self, prompt: TokenSequence) -> tuple[SequenceEntry | None, int]:
        """Return the sequence that the server's lookup ends at, and how many tokens it finds."""
        shared = self._shared(prompt)
        for entry, common in shared:
            if common == entry.length == prompt.length:
                return entry, common
        shorter, most = longest_prefix(shared, prompt, _LEAST)
        walked = max((common for _, common in shared), default=0)
        if walked > most:
            longer = min(
                (entry for entry, common in shared if common == walked), key=lambda entry: entry.length
            )
            if self._cuttable(longer):
                return longer, min(prompt.length - 1, walked)
        return shorter, most

    def _ends(self, length: int, reused: int, marks: PromptBoundaries) -> tuple[End, ...]:
        prompt = length if marks.prompt_tokens is None else marks.prompt_tokens
        *parts, (_, last) = segments(prompt, marks)
        before = parts[-1][0] if parts else 0
        if self.last_token_apart and prompt - max(before, reused) > 1:
            parts.append((prompt - 1, last))
        return (*((end, kind) for end, kind in parts if end > reused), (length, "assistant"))

    def _snapshots(self, sequence: TokenSequence, match: Match, marks: PromptBoundaries) -> Iterable[int]:
        return [end for end, _ in self._ends(sequence.length, match.reused, marks)]

    def _use(self, entry: SequenceEntry, prompt: TokenSequence) -> None:
        """Do nothing: a lookup is no use."""

    def _victim(self) -> SequenceEntry:
        queues = {kind: [entry for entry in self._entries if entry.kind == kind] for kind in ENTRY_KINDS}
        for kind, following in pairwise(ENTRY_KINDS):
            if queues[kind] and len(queues[kind]) >= len(queues[following]):
                return queues[kind][0]
        return queues[ENTRY_KINDS[-1]][0]

    def _insert(self, entry: SequenceEntry) -> None:
        for other in self._begun(entry):
            if other.length == entry.length or self._cuttable(entry):
                self._remove(other)
        self._add(entry)
        # The new sequence counts too, and may be the one to go.
        if self.max_entries is not None and len(self._entries) > self.max_entries:
            self._evict(self._victim())
        while self.capacity_bytes is not None and self._statistics.bytes > self.capacity_bytes:
            self._evict(self._victim())


KINDS = (CacheKind(MlxLmCache.kind, of_sequences(MlxLmCache)),)
