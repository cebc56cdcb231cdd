"""What caches without blocks have in common: they keep whole sequences and go on from one of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..models.layers import Layers
from ..models.sizes import Sizes, counted
from ..tokenization.token_range import TokenRange
from .base import (
    NO_MARKS,
    Block,
    CacheStatistics,
    Match,
    Payload,
    PromptBoundaries,
    Room,
    bytes_before,
    last_position,
    trim,
)
from .sequences import TokenSequence

if TYPE_CHECKING:
    from ..conversation import Request
    from ..tokenization.tokens import Ids

_PLAIN = Layers()
End = tuple[int, str]


@dataclass(frozen=True, slots=True, eq=False)
class SequenceEntry:
    """One stored sequence.

    Attributes:
        ids: its tokens.
        blocks: the states, without gaps from the first token to the last.
        kind: what the server calls it, where it tells kinds apart.
    """

    ids: TokenSequence
    blocks: tuple[Block, ...]
    kind: str = ""

    @property
    def length(self) -> int:
        """Number of tokens."""
        return self.ids.length

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """Positions with a copied state, rising."""
        return tuple(block.end for block in self.blocks if block.snapshot)

    @property
    def nbytes(self) -> int:
        """Bytes of all its states."""
        return sum(block.nbytes for block in self.blocks)


class SequenceCache:
    """Whole sequences, least recently used first, at token granularity.

    By itself it takes over as much as any sequence gives. Servers' rules are subclasses, which say which
    sequence is looked at (`_find`), which are stored (`_ends`), where states are copied (`_snapshots`) and
    which give way. Their numbers are attributes, set to what the server does without further options.

    Args:
        layers: what the model's layers keep.
        capacity_bytes: the most that they may occupy together; None for `usual_capacity`.
        sizes: of the model's state, which spans without payload are counted by; needed with a capacity where
            payloads are not given.
    """

    kind = "entries"
    room: Room = "sequence"
    block_size = 1
    #: Whether what sequences share is kept once; otherwise each is a copy.
    shared = False
    #: Whether a sequence that can be cut makes those superfluous that it begins with.
    drops_prefixes = True
    #: The most sequences, or None for no limit.
    max_entries: int | None = None
    #: The server's own limit in bytes, where tokens' sizes are known; None for none.
    usual_capacity: int | None = None

    def __init__(
        self,
        layers: Layers = _PLAIN,
        *,
        capacity_bytes: int | None = None,
        sizes: Sizes | None = None,
    ) -> None:
        self.layers = layers
        self.capacity_bytes = capacity_bytes
        if capacity_bytes is None and sizes is not None:
            self.capacity_bytes = self.usual_capacity
        self.sizes = sizes
        self._entries: list[SequenceEntry] = []
        self._dropped: list[tuple[SequenceEntry, int]] = []
        self._last: SequenceEntry | None = None
        self._statistics = CacheStatistics()

    @property
    def statistics(self) -> CacheStatistics:
        """The counts so far."""
        return self._statistics

    def reusable(self, shared: int, length: int) -> int:
        """Return how much an unlimited cache takes over of `length` tokens, `shared` of them stored.

        Where layers cannot be trim, the positions that count are those of the sequence stored last.
        """
        limit = max(0, min(shared, length - 1))
        if self._last is None or self.layers.sliceable_at(self._last.length):
            return limit
        return last_position((*self._last.checkpoints, self._last.length), limit)

    def wants_system_prefix(self, request: Request) -> bool:
        """Return that no lookup needs it."""
        return False

    def why_not(self, shared: int, length: int) -> str:
        """Return "": what is taken over is decided by positions."""
        return ""

    def match(self, ids: Ids, marks: PromptBoundaries = NO_MARKS) -> Match:
        """Return what the server takes over of a prompt."""
        prompt = TokenSequence.of(ids)
        entry, reused = self._find(prompt)
        self._statistics = self._statistics.plus(lookups=1, hits=reused, misses=len(ids) - reused)
        evicted = next(
            (turn for dropped, turn in reversed(self._dropped) if self._resume(dropped, prompt) > reused),
            None,
        )
        if entry is None:
            return Match(0, (), evicted)
        self._use(entry, prompt)
        return Match(reused, trim(entry.blocks, reused), evicted)

    def probe(self, ids: Ids, marks: PromptBoundaries = NO_MARKS) -> int:
        """Return how many tokens `match` would take over."""
        other = copy(self)
        other._entries, other._dropped = list(self._entries), list(self._dropped)
        return other._find(TokenSequence.of(ids))[1]

    def lift_limits(self) -> None:
        """Keep every sequence from now on."""
        self.max_entries = None
        self.capacity_bytes = None

    @contextmanager
    def pin(self, match: Match) -> Iterator[None]:
        """Do nothing: a match is a copy that the cache no longer counts."""
        yield

    def spans(self, ids: Ids, match: Match, marks: PromptBoundaries = NO_MARKS) -> tuple[TokenRange, ...]:
        """Return what lies between the positions at which states are stored or copied, behind a match."""
        length, reused = len(ids), match.reused
        ends = {end for end, _ in self._ends(length, reused, marks)}
        copied = ends | set(self._snapshots(TokenSequence.of(ids), match, marks))
        ends = {end for end in copied | {length} if reused < end <= length}
        spans: list[TokenRange] = []
        for end in sorted(ends):
            start = spans[-1].end if spans else reused
            spans.append(TokenRange(start, end, end in copied and not self.layers.trimmable))
        return tuple(spans)

    def store(
        self,
        ids: Ids,
        payloads: Sequence[Payload] | None = None,
        *,
        match: Match | None = None,
        marks: PromptBoundaries = NO_MARKS,
    ) -> None:
        """Take in a sequence, and those of its beginnings that the server stores.

        Args:
            ids: the sequence, shape `(n,)`.
            payloads: the states of `spans`, one each.
            match: what was taken over; None for nothing.
            marks: what the server knows of the sequence.

        Raises:
            ValueError: another number of payloads than of spans, or a capacity and no way to tell a size.
        """
        match = match or Match(0)
        spans = self.spans(ids, match, marks)
        if payloads is not None and len(payloads) != len(spans):
            raise ValueError(f"{len(payloads)} payloads for {len(spans)} spans")
        sequence = TokenSequence.of(ids)
        taken = trim(match.blocks, match.reused)
        if not taken and match.reused:
            raise ValueError(f"{match.reused} tokens were taken over, but no block holds them")
        blocks = list(taken)
        old = self._inherited(taken)
        new = set(self._snapshots(sequence, match, marks))
        states = counted(spans, self.sizes, self.capacity_bytes) if payloads is None else payloads
        for span, state in zip(spans, states, strict=True):
            nbytes = state.nbytes if state else 0
            blocks.append(Block(b"", span.start, span.end, nbytes, state, span.snapshot))
        for end, kind in self._ends(len(ids), match.reused, marks):
            if end > 0:
                # A state at the end of one sequence need not be a checkpoint of those that go on from there.
                *inner, last = trim(blocks, end)
                copied = {each.end for each in inner if each.snapshot}
                kept = set(self._thinned([at for at in old if at in copied], sorted(new & copied)))
                inner = [replace(each, snapshot=each.end in kept) for each in inner]
                entry = SequenceEntry(sequence.prefix(end), (*inner, last), kind)
                self._last = without_payloads(entry)
                self._insert(entry)

    def __len__(self) -> int:
        return len(self._entries)

    # The rules that servers replace

    def _find(self, prompt: TokenSequence) -> tuple[SequenceEntry | None, int]:
        """Return the sequence that is gone on from and how many tokens it gives; the latest among equals."""
        best, most = None, 0
        for entry in self._entries:
            reused = self._resume(entry, prompt)
            if reused and reused >= most:
                best, most = entry, reused
        return best, most

    def _ends(self, length: int, reused: int, marks: PromptBoundaries) -> tuple[End, ...]:
        """Return which beginnings of a sequence are stored, the shortest first, and as what kind."""
        return ((length, ""),)

    def _snapshots(self, sequence: TokenSequence, match: Match, marks: PromptBoundaries) -> Iterable[int]:
        """Return further positions at which states are copied where layers cannot be cut."""
        return ()

    def _inherited(self, blocks: tuple[Block, ...]) -> tuple[int, ...]:
        """Return which of the copied states that were taken over stay checkpoints, by their positions."""
        return tuple(block.end for block in blocks if block.snapshot)

    def _thinned(self, old: list[int], new: list[int]) -> list[int]:
        """Return the checkpoints inside a sequence that are kept, where the server limits them.

        Args:
            old: positions of those that were taken over, rising.
            new: positions of those that this sequence brings, rising.
        """
        return [*old, *new]

    def _use(self, entry: SequenceEntry, prompt: TokenSequence) -> None:
        """Mark a sequence as used now, by a prompt that goes on from it or is equal to it."""
        self._entries.remove(entry)
        self._entries.append(entry)

    def _victim(self) -> SequenceEntry:
        return self._entries[0]

    def _insert(self, entry: SequenceEntry) -> None:
        superfluous = self.drops_prefixes and self._cuttable(entry)
        for other in self._begun(entry):
            if superfluous or other.length == entry.length:
                self._remove(other)
        self._make_room(entry)

    # What they share

    def _shared(self, prompt: TokenSequence) -> list[tuple[SequenceEntry, int]]:
        return [(entry, entry.ids.common(prompt)) for entry in self._entries]

    def _begun(self, entry: SequenceEntry) -> list[SequenceEntry]:
        return [other for other in self._entries if other.ids.common(entry.ids) == other.length]

    def _make_room(self, entry: SequenceEntry) -> None:
        """Add a sequence after dropping what is in its way; refuse one that is larger than the cache."""
        cost = self._cost(entry)
        if self.capacity_bytes is not None and entry.nbytes > self.capacity_bytes:
            self._dropped.append((without_payloads(entry), self._statistics.lookups))
            self._statistics = self._statistics.plus(refused_blocks=1)
            return
        while self._entries and not self._fits(cost):
            self._evict(self._victim())
            cost = self._cost(entry)
        self._add(entry)

    def _fits(self, cost: int) -> bool:
        """Tell whether one more sequence, which costs so many bytes, is within the limits."""
        full = self.max_entries is not None and len(self._entries) >= self.max_entries
        return not full and (
            self.capacity_bytes is None or self._statistics.bytes + cost <= self.capacity_bytes
        )

    def _add(self, entry: SequenceEntry) -> None:
        self._statistics = self._statistics.plus(blocks=1, bytes=self._cost(entry), stored_blocks=1)
        self._entries.append(entry)

    def _remove(self, entry: SequenceEntry) -> None:
        """Take a sequence out because another stands for it."""
        self._entries.remove(entry)
        self._statistics = self._statistics.plus(blocks=-1, bytes=-self._cost(entry))

    def _evict(self, entry: SequenceEntry) -> None:
        """Take a sequence out for want of room."""
        self._remove(entry)
        self._dropped.append((without_payloads(entry), self._statistics.lookups))
        self._statistics = self._statistics.plus(evicted_blocks=1)

    def _cost(self, entry: SequenceEntry) -> int:
        if not self.shared:
            return entry.nbytes
        known = max((other.ids.common(entry.ids) for other in self._entries), default=0)
        return entry.nbytes - bytes_before(entry.blocks, known)

    def _resume(self, entry: SequenceEntry, prompt: TokenSequence) -> int:
        """Return from where a prompt can go on from a sequence; its last token has to run."""
        limit = min(entry.ids.common(prompt), prompt.length - 1)
        return limit if self._cuttable(entry) else last_position((*entry.checkpoints, entry.length), limit)

    def _cuttable(self, entry: SequenceEntry) -> bool:
        """Tell whether a sequence's states can be cut back to any token."""
        return self.layers.sliceable_at(entry.length)


def without_payloads(entry: SequenceEntry) -> SequenceEntry:
    """Return what is remembered of a sequence whose states may be gone."""
    return replace(entry, blocks=tuple(replace(block, payload=None) for block in entry.blocks))
