"""A paged prefix cache: blocks of tokens, found by chained hashes, dropped least recently used first.

The rules are oMLX's (docs/servers.md, sections 1.16 to 1.18); other servers with blocks differ in the names,
the size, and in what they do with a prompt that is there whole. Where all layers can be cut at any token,
full blocks are kept. Where some cannot, a prompt can only go on from a position at which their state was
copied.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from ..models.sizes import Sizes, counted
from ..tokenization.token_range import TokenRange
from ..tokenization.tokens import common_prefix_ids
from .base import (
    NO_MARKS,
    Block,
    CacheStatistics,
    Match,
    Payload,
    PromptBoundaries,
    Room,
    last_position,
    reusable,
)
from .hashes import BlockHasher, chain, recipe
from .partial_blocks import TailIndex, tail_position

if TYPE_CHECKING:
    from ..conversation import Request
    from ..tokenization.tokens import Ids

#: What is done with a prompt that is there whole, since its last token has to run for its logits: give up
#: that token, give up the last block, or prefill all of it.
FullHitRule: TypeAlias = Literal["trim", "drop-block", "prefill"]


class PagedCache:
    """The blocks of all prompts so far, with or without a model's state in them.

    Source: `cache/paged_cache.py` and `cache/prefix_cache.py` of jundot/omlx and of repositories that carry
    its code, July to autumn 2026; names run, the rest read (docs/servers.md, sections 1.16 to 1.18). `omlx`
    has the settings of its versions, `make_cache` those of other servers.

    Args:
        block_size: tokens per block.
        capacity_bytes: the most that the blocks may occupy together, or None for no limit.
        sizes: of the model's state, which blocks without payload are counted by; needed with a capacity where
            payloads are not given.
        named: names the blocks; None for oMLX's way.
        trimmable: whether all layers can be cut at any token. If not, only positions with a snapshot count.
        whole: what is done with a prompt that is there whole. Default: `trim` where layers can be cut.
        tails: whether prompts' ends are kept as shorter blocks; only without `trimmable`.
        step: the most tokens that are prefilled at once, where the states of layers that cannot be trimmed
            are kept only where such a step ends with a block; None where they are kept with every block.
        kind: the cache's name in reports.

    Raises:
        ValueError: settings that contradict each other.
    """

    room: Room = "block"

    def __init__(
        self,
        block_size: int = 256,
        *,
        capacity_bytes: int | None = None,
        sizes: Sizes | None = None,
        named: BlockHasher | None = None,
        trimmable: bool = True,
        full_hit: FullHitRule | None = None,
        tails: bool = False,
        step: int | None = None,
        kind: str = "paged",
    ) -> None:
        if block_size < 1:
            raise ValueError(f"a block needs at least one token, not {block_size}")
        self.kind = kind
        self.block_size = block_size
        self.capacity_bytes = capacity_bytes
        self.sizes = sizes
        self.trimmable = trimmable
        self.full_hit: FullHitRule = full_hit or ("trim" if trimmable else "drop-block")
        self.tails = tails
        self.step = step
        if trimmable and tails:
            raise ValueError("layers that can be trimmed need no tails")
        if step is not None and (trimmable or tails):
            raise ValueError("steps count only for blocks whose states cannot be trimmed")
        if not trimmable and self.full_hit == "trim":
            raise ValueError("layers that cannot be trimmed cannot give up one token")
        self._named = named or recipe()
        # Least recently used first. A use touches a chain from its last block to its first, so every block
        # stands behind all blocks that continue it: the first one that is not in use is always a leaf, and
        # dropping it leaves no block that a lookup could not reach.
        self._blocks: OrderedDict[bytes, Block] = OrderedDict()
        self._references: Counter[bytes] = Counter()
        self._dropped: dict[bytes, int] = {}
        self._tails = TailIndex()
        self._statistics = CacheStatistics()
        self._ids: Ids = np.empty(0, np.int32)
        self._names: tuple[bytes, ...] = ()
        # Of the sequence stored last: the most that was stored of it, and where its tail ends.
        self._last: tuple[int | None, int] = (None, 0)
        # Where that sequence has states, where not every block has one.
        self._kept_ends: tuple[int, ...] | None = None

    @property
    def statistics(self) -> CacheStatistics:
        """The counts so far."""
        return self._statistics

    def reusable(self, shared: int, length: int) -> int:
        """Return how much an unlimited cache takes over of `length` tokens, `shared` of them stored.

        The tail that counts is that of the sequence stored last.
        """
        if self.full_hit == "trim":
            return reusable(shared, length, self.block_size)
        shared = min(shared, length)
        if self.step is not None and self._kept_ends is not None:
            return last_position(self._kept_ends, min(shared, length - 1))
        stored, tail = self._last if self.tails else (None, 0)
        full = (shared if stored is None else min(shared, stored)) // self.block_size * self.block_size
        end = tail if full < tail <= shared else full
        if end and end == length:
            if self.full_hit == "prefill":
                return 0
            end = full if tail == end else full - self.block_size
        return end

    def wants_system_prefix(self, request: Request) -> bool:
        """Return that no lookup needs it."""
        return False

    def why_not(self, shared: int, length: int) -> str:
        """Say where states are, unless every block has one."""
        if self.step is None:
            return ""
        return (
            "the state of recurrent layers is kept only where a step of the prefill ends with a block of "
            f"{self.block_size} tokens"
        )

    def match(self, ids: Ids, marks: PromptBoundaries = NO_MARKS) -> Match:
        """Return what is there of the beginning of a prompt and can be gone on from, and mark it as used."""
        names = self._chain(ids)
        blocks = self.lookup(ids)
        found = self._present(names)
        self._touch([block.name for block in blocks])
        self._statistics = self._statistics.plus(lookups=1, hits=found, misses=len(names) - found)
        usable, reused = self._usable(blocks, len(ids))
        evicted = self._dropped.get(names[found]) if found < len(names) else None
        return Match(reused, usable, evicted)

    def probe(self, ids: Ids, marks: PromptBoundaries = NO_MARKS) -> int:
        """Return how many tokens `match` would take over."""
        return self._usable(self.lookup(ids), len(ids))[1]

    def lift_limits(self) -> None:
        """Keep every block from now on."""
        self.capacity_bytes = None

    def lookup(self, ids: Ids) -> tuple[Block, ...]:
        """Return the chain of present blocks from the beginning of a prompt, its tail included."""
        names = self._chain(ids)
        names = names[: self._present(names)]
        blocks = [self._blocks[name] for name in names]
        if self.tails:
            parent = names[-1] if names else None
            rest = ids[len(names) * self.block_size :]
            for name, length in [*self._tails.longest_first(parent, len(rest))]:
                if name not in self._blocks:
                    self._tails.remove(parent, name)
                elif self._named(tuple(rest[:length].tolist()), parent) == name:
                    blocks.append(self._blocks[name])
                    break
        return tuple(blocks)

    @contextmanager
    def pin(self, match: Match) -> Iterator[None]:
        """Keep a match's blocks while the context lasts; holds nest."""
        with self._held([block.name for block in match.blocks]):
            yield

    def spans(self, ids: Ids, match: Match, marks: PromptBoundaries = NO_MARKS) -> tuple[TokenRange, ...]:
        """Return the blocks that are to be stored behind a match; a tail starts where its block would."""
        held = len(match.blocks) if self.trimmable else match.reused // self.block_size
        return tuple(
            span
            for span in self._spans(ids, match.reused, marks)
            if span.start >= held * self.block_size and span.end > (0 if self.trimmable else match.reused)
        )

    def store(
        self,
        ids: Ids,
        payloads: Sequence[Payload] | None = None,
        *,
        match: Match | None = None,
        marks: PromptBoundaries = NO_MARKS,
    ) -> None:
        """Take in the blocks of a sequence that are not there yet.

        Where room is short, other chains give way, least recently used blocks first. The sequence's own
        blocks do not: if nothing else is left to drop, the rest of the sequence is not stored.

        Args:
            ids: the sequence, shape `(n,)`.
            payloads: the states of its last `len(payloads)` spans. Storing ends at a block that is not there
                and has no payload, since a block that cannot be restored must not be found.
            match: what was taken over; it decides where a tail is possible.
            marks: what the server knows of the sequence; it decides where the tail is.

        Raises:
            ValueError: more payloads than spans, or a capacity and no way to tell a block's size.
        """
        names = self._chain(ids)
        spans = self._spans(ids, match.reused if match else 0, marks)
        planned = [(span, *self._planned(ids, names, span)) for span in spans]
        states: Sequence[Payload | None]
        if payloads is None:
            absent = (at for at, (span, name, _) in enumerate(planned) if self._is_wanted(name, span))
            states = counted(spans[next(absent, len(spans)) :], self.sizes, self.capacity_bytes)
        else:
            states = payloads
        first = len(spans) - len(states)
        if first < 0:
            raise ValueError(f"{len(states)} payloads for {len(spans)} full blocks")
        stored = tail = 0
        if self.step is not None:
            old = tuple(block.end for block in match.blocks if block.snapshot) if match else ()
            self._kept_ends = (*old, *(span.end for span in spans if span.snapshot))
        with self._held(names[: self._present(names)]) as held:
            try:
                for at, (span, name, parent) in enumerate(planned):
                    if self._is_wanted(name, span):
                        if at < first:
                            break
                        state = states[at - first]
                        nbytes = state.nbytes if state else 0
                        block = Block(name, span.start, span.end, nbytes, state, span.snapshot)
                        without = self._blocks.get(name)  # it may be there without the state behind it
                        if not self._make_room(nbytes - (without.nbytes if without else 0)):
                            self._refuse([name for _, name, _ in planned[at:] if name not in self._blocks])
                            break
                        if without:
                            self._remove(name)
                        self._add(block)
                        held.append(name)
                        self._references[name] += 1
                    stored = span.end
                    if span.end % self.block_size:
                        tail = span.end
                        self._register(parent, name, span.end - span.start)
            finally:
                self._touch(held)
                self._last = (stored, tail)

    def __contains__(self, name: bytes) -> bool:
        return name in self._blocks

    def __len__(self) -> int:
        return len(self._blocks)

    def _usable(self, blocks: tuple[Block, ...], length: int) -> tuple[tuple[Block, ...], int]:
        """Return what of a chain a prompt of `length` tokens can go on from, and how many tokens that are."""
        covered = blocks[-1].end if blocks else 0
        if covered and covered == length:
            if self.full_hit == "trim":
                return blocks, length - 1
            blocks = blocks[:-1] if self.full_hit == "drop-block" else ()
        if not self.trimmable:
            while blocks and not blocks[-1].snapshot:
                blocks = blocks[:-1]
        return blocks, blocks[-1].end if blocks else 0

    def _is_wanted(self, name: bytes, span: TokenRange) -> bool:
        """Tell whether a block is to be taken in: it is not there, or without the state behind it."""
        block = self._blocks.get(name)
        return block is None or (self.step is not None and span.snapshot and not block.snapshot)

    def _step_ends(self, ids: Ids, reused: int, marks: PromptBoundaries) -> set[int]:
        """Return at which blocks' ends the state of a sequence is kept behind what was taken over.

        A step ends with a block unless it is the last one, before the last block that the prompt fills, and
        where blocks that are there without a state end. A reply leaves one at every block.
        """
        assert self.step is not None
        size, length = self.block_size, len(ids)
        prompt = length if marks.prompt_tokens is None else marks.prompt_tokens
        shared = self._present(self._chain(ids)) * size
        ends = set(range((prompt // size + 1) * size, length + 1, size))
        at = reused
        while at < prompt:
            end = min(at + self.step, prompt)
            if end < prompt and (aligned := end // size * size) > at:
                end = aligned
            stops = [(prompt - 1) // size * size, shared]
            if at % size:
                stops.append((at // size + 1) * size)
            end = min([end, *(stop for stop in stops if at < stop < end)])
            if end % size == 0:
                ends.add(end)
            at = end
        return ends

    def _spans(self, ids: Ids, reused: int, marks: PromptBoundaries) -> list[TokenRange]:
        """Return all blocks and the tail of a sequence, by rising end."""
        size, length = self.block_size, len(ids)
        if self.step is not None:
            kept = self._step_ends(ids, reused, marks)
            starts = range(0, length - size + 1, size)
            return [TokenRange(start, start + size, start + size in kept) for start in starts]
        tail = None
        stored = length
        if self.tails:
            prompt = length if marks.prompt_tokens is None else marks.prompt_tokens
            marker = marks.generation_prompt or 0
            if marker >= prompt:
                marker = 0
            prefilled = prompt - 1 - reused
            tail = tail_position(reused, prefilled, marker, size)
            # Blocks beyond the generation prompt hold what history will not have.
            complete = prompt < length and length % size == 0
            if not (marks.persists or complete or 0 < marker <= reused):
                stored = marker or prompt - 1
        spans = [
            TokenRange(start, start + size, not self.trimmable) for start in range(0, stored - size + 1, size)
        ]
        if tail is not None:
            spans.append(TokenRange(tail // size * size, tail, True))
            spans.sort(key=lambda span: span.end)
        return spans

    def _planned(self, ids: Ids, names: Sequence[bytes], span: TokenRange) -> tuple[bytes, bytes | None]:
        """Return the name of a block or tail, and its parent's."""
        at = span.start // self.block_size
        parent = names[at - 1] if at else None
        if span.end % self.block_size:
            return self._named(tuple(ids[span.start : span.end].tolist()), parent), parent
        return names[at], parent

    def _register(self, parent: bytes | None, name: bytes, length: int) -> None:
        """Make a tail findable; those that it takes the place of are dropped unless they are in use."""
        for dropped in self._tails.add(parent, name, length):
            if dropped in self._blocks and not self._references[dropped]:
                self._evict(dropped)

    def _chain(self, ids: Ids) -> tuple[bytes, ...]:
        """Return the names of a sequence's full blocks, hashing only what differs from the last sequence."""
        same = common_prefix_ids(self._ids, ids) // self.block_size
        self._names = chain(ids, self.block_size, known=self._names[:same], named=self._named)
        self._ids = np.array(ids, np.int32)
        return self._names

    def _present(self, names: Sequence[bytes]) -> int:
        """Return how many blocks are there from the beginning of a chain."""
        return next((at for at, name in enumerate(names) if name not in self._blocks), len(names))

    def _touch(self, names: Sequence[bytes]) -> None:
        for name in reversed(names):
            if name in self._blocks:
                self._blocks.move_to_end(name)

    @contextmanager
    def _held(self, names: Sequence[bytes]) -> Iterator[list[bytes]]:
        """Refer to blocks while the context lasts; names appended to the list are let go with the others."""
        held = list(names)
        self._references.update(held)
        try:
            yield held
        finally:
            self._references.subtract(held)
            for name in held:
                if not self._references[name]:
                    del self._references[name]

    def _make_room(self, nbytes: int) -> bool:
        """Drop blocks that are not in use until `nbytes` fit, and say whether they do."""
        if self.capacity_bytes is None:
            return True
        while self._statistics.bytes + nbytes > self.capacity_bytes:
            name = next((name for name in self._blocks if not self._references[name]), None)
            if name is None:
                return False
            self._evict(name)
        return True

    def _evict(self, name: bytes) -> None:
        self._remove(name)
        self._dropped[name] = self._statistics.lookups
        self._statistics = self._statistics.plus(evicted_blocks=1)

    def _remove(self, name: bytes) -> None:
        block = self._blocks.pop(name)
        self._statistics = self._statistics.plus(blocks=-1, bytes=-block.nbytes)

    def _add(self, block: Block) -> None:
        self._blocks[block.name] = block
        self._statistics = self._statistics.plus(blocks=1, bytes=block.nbytes, stored_blocks=1)

    def _refuse(self, names: Sequence[bytes]) -> None:
        self._dropped.update(dict.fromkeys(names, self._statistics.lookups))
        self._statistics = self._statistics.plus(refused_blocks=len(names))
