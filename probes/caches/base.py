"""What a prefix cache is: it takes over the beginning of a prompt that it has seen before."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..tokens import Ids


class Payload(Protocol):
    """A model's state for one block, as the engine that made it understands it."""

    @property
    def nbytes(self) -> int:
        """The memory that the state occupies, in bytes."""
        ...


@dataclass(frozen=True, slots=True)
class Block:
    """One stored block.

    Attributes:
        name: its hash (see `hashes`).
        start: position of its first token in the prompt, counted from 0.
        nbytes: what it occupies of the cache's capacity.
        payload: the model's state for it, or None where tokens are only counted.
    """

    name: bytes
    start: int
    nbytes: int
    payload: Payload | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """What a cache can take over of one prompt.

    Attributes:
        reused: tokens that need no prefill; less than the prompt's length.
        blocks: the blocks that hold them, from the prompt's first token on; can cover more than `reused`.
        evicted: where the match ended at a block that was offered earlier and is not there for want of room,
            the number of the lookup (from 1) in whose turn it was dropped or refused; None otherwise.
    """

    reused: int
    blocks: tuple[Block, ...] = ()
    evicted: int | None = None


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """Counts since the cache was made, except `blocks` and `bytes`, which say what it holds now.

    Attributes:
        lookups: prompts that were looked up.
        hits: full blocks of those prompts that were found.
        misses: full blocks of those prompts that were not found.
        blocks: blocks held.
        bytes: bytes held.
        stored_blocks: blocks taken in.
        evicted_blocks: blocks dropped to make room for others.
        refused_blocks: blocks not taken in, because what was in use left no room.
    """

    lookups: int = 0
    hits: int = 0
    misses: int = 0
    blocks: int = 0
    bytes: int = 0
    stored_blocks: int = 0
    evicted_blocks: int = 0
    refused_blocks: int = 0


class PrefixCache(Protocol):
    """One server's cache. A turn is: match, hold the match while prefilling the rest, store.

    The same cache serves an engine that computes and one that only counts; the former gives payloads.
    """

    @property
    def kind(self) -> str:
        """The cache's name in reports."""
        ...

    @property
    def block_size(self) -> int:
        """Tokens per block; 1 where the cache is token-granular."""
        ...

    @property
    def statistics(self) -> CacheStatistics:
        """The counts so far."""
        ...

    def reusable(self, shared: int, length: int) -> int:
        """Return how much of a prompt an unlimited cache would take over, by this cache's own rule.

        Args:
            shared: tokens that the prompt shares with a stored sequence.
            length: the prompt's length in tokens.
        """
        ...

    def match(self, ids: Ids) -> Match:
        """Look a prompt up; what it finds counts as used now."""
        ...

    def hold(self, match: Match) -> AbstractContextManager[None]:
        """Keep a match's blocks from being dropped while the context lasts."""
        ...

    def store(self, ids: Ids, payloads: Sequence[Payload] | None = None) -> None:
        """Take in what a turn computed.

        Args:
            ids: the sequence whose state is to be kept, shape `(n,)`.
            payloads: the states of its last full blocks, in order; those before them are held already. None
                from an engine that only counts.
        """
        ...


def reusable(shared: int, length: int, block_size: int) -> int:
    """Return how many tokens of a prompt a cache of whole, sliceable blocks can take over.

    At least one token has to run, for its logits: where the whole prompt is there, its last one is given up.

    Args:
        shared: tokens that the prompt shares with a stored sequence.
        length: the prompt's length in tokens.
        block_size: tokens per block.
    """
    return max(0, min(min(shared, length) // block_size * block_size, length - 1))
