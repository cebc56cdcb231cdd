"""A paged prefix cache: whole blocks of tokens, found by chained hashes, dropped least recently used first.

The rules are oMLX's for models whose layers can all be cut at any token (docs/servers.md, section oMLX):
full blocks only, a lookup walks the chain and stops at the first missing block, and a prompt that is there
whole is cut back by one token, since its last logits have to be computed.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..tokens import common_prefix_ids
from .base import Block, CacheStatistics, Match, Payload, reusable
from .hashes import chain

if TYPE_CHECKING:
    from ..tokens import Ids


class PagedCache:
    """The blocks of all prompts so far, with or without a model's state in them.

    Args:
        block_size: tokens per block.
        model_name: salt of the block hashes.
        capacity_bytes: the most that the blocks may occupy together, or None for no limit.
        bytes_per_token: what a block without payload counts, per token; needed with a capacity where payloads
            are not given.

    Raises:
        ValueError: `block_size` is less than 1.
    """

    kind = "paged"

    def __init__(
        self,
        block_size: int = 256,
        *,
        model_name: str | None = None,
        capacity_bytes: int | None = None,
        bytes_per_token: int | None = None,
    ) -> None:
        if block_size < 1:
            raise ValueError(f"a block needs at least one token, not {block_size}")
        self.block_size = block_size
        self.model_name = model_name
        self.capacity_bytes = capacity_bytes
        self.bytes_per_token = bytes_per_token
        # Least recently used first. A use touches a chain from its last block to its first, so every block
        # stands behind all blocks that continue it: the first one that is not in use is always a leaf, and
        # dropping it leaves no block that a lookup could not reach.
        self._blocks: OrderedDict[bytes, Block] = OrderedDict()
        self._references: Counter[bytes] = Counter()
        self._dropped: dict[bytes, int] = {}
        self._statistics = CacheStatistics()
        self._ids: Ids = np.empty(0, np.int32)
        self._names: tuple[bytes, ...] = ()

    @property
    def statistics(self) -> CacheStatistics:
        """The counts so far."""
        return self._statistics

    def reusable(self, shared: int, length: int) -> int:
        """Return how much an unlimited cache takes over of `length` tokens, `shared` of them stored."""
        return reusable(shared, length, self.block_size)

    def match(self, ids: Ids) -> Match:
        """Return the longest chain of present blocks from the beginning of a prompt, and mark it as used."""
        names = self._chain(ids)
        found = self._present(names)
        self._touch(names[:found])
        was = self._statistics
        self._statistics = replace(
            was, lookups=was.lookups + 1, hits=was.hits + found, misses=was.misses + len(names) - found
        )
        return Match(
            reused=self.reusable(found * self.block_size, len(ids)),
            blocks=tuple(self._blocks[name] for name in names[:found]),
            evicted=self._dropped.get(names[found]) if found < len(names) else None,
        )

    @contextmanager
    def hold(self, match: Match) -> Iterator[None]:
        """Keep a match's blocks while the context lasts; holds nest."""
        with self._held([block.name for block in match.blocks]):
            yield

    def store(self, ids: Ids, payloads: Sequence[Payload] | None = None) -> None:
        """Take in the full blocks of a sequence that are not there yet.

        Where room is short, other chains give way, least recently used blocks first. The sequence's own
        blocks do not: if nothing else is left to drop, the rest of the sequence is not stored.

        Args:
            ids: the sequence, shape `(n,)`.
            payloads: the states of its last `len(payloads)` full blocks. Storing ends at a block that is not
                there and has no payload, since a block that cannot be restored must not be found.

        Raises:
            ValueError: more payloads than full blocks, or a capacity and no way to tell a block's size.
        """
        names = self._chain(ids)
        first = len(names) if payloads is None else len(names) - len(payloads)
        if first < 0:
            raise ValueError(f"{len(payloads or ())} payloads for {len(names)} full blocks")
        present = self._present(names)
        with self._held(names[:present]) as held:
            try:
                for at in range(present, len(names)):
                    if payloads is not None and at < first:
                        break
                    payload = None if payloads is None else payloads[at - first]
                    block = Block(names[at], at * self.block_size, self._size(payload), payload)
                    if not self._make_room(block.nbytes):
                        self._refuse(names[at:])
                        break
                    self._add(block)
                    held.append(block.name)
                    self._references[block.name] += 1
            finally:
                self._touch(held)

    def references(self, name: bytes) -> int:
        """Return how many holds a block is under."""
        return self._references[name]

    def __contains__(self, name: bytes) -> bool:
        return name in self._blocks

    def __len__(self) -> int:
        return len(self._blocks)

    def _chain(self, ids: Ids) -> tuple[bytes, ...]:
        """Return the names of a sequence's full blocks, hashing only what differs from the last sequence."""
        same = common_prefix_ids(self._ids, ids) // self.block_size
        self._names = chain(ids, self.block_size, model_name=self.model_name, known=self._names[:same])
        self._ids = np.array(ids, np.int32)
        return self._names

    def _present(self, names: Sequence[bytes]) -> int:
        """Return how many blocks are there from the beginning of a chain."""
        return next((at for at, name in enumerate(names) if name not in self._blocks), len(names))

    def _touch(self, names: Sequence[bytes]) -> None:
        for name in reversed(names):
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

    def _size(self, payload: Payload | None) -> int:
        """Return what a block counts, in bytes."""
        if payload is not None:
            return payload.nbytes
        if self.bytes_per_token is None and self.capacity_bytes is not None:
            raise ValueError("a capacity in bytes needs payloads or bytes_per_token")
        return (self.bytes_per_token or 0) * self.block_size

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
        block = self._blocks.pop(name)
        was = self._statistics
        self._dropped[name] = was.lookups
        self._statistics = replace(
            was,
            blocks=was.blocks - 1,
            bytes=was.bytes - block.nbytes,
            evicted_blocks=was.evicted_blocks + 1,
        )

    def _add(self, block: Block) -> None:
        self._blocks[block.name] = block
        was = self._statistics
        self._statistics = replace(
            was,
            blocks=was.blocks + 1,
            bytes=was.bytes + block.nbytes,
            stored_blocks=was.stored_blocks + 1,
        )

    def _refuse(self, names: Sequence[bytes]) -> None:
        was = self._statistics
        self._dropped.update(dict.fromkeys(names, was.lookups))
        self._statistics = replace(was, refused_blocks=was.refused_blocks + len(names))
