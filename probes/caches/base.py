"""What a prefix cache is: it takes over the beginning of a prompt that it has seen before."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from ..conversation import Request
    from ..tokenization.token_range import TokenRange
    from ..tokenization.tokens import Ids


#: What a cache gives up as a whole where there is no more room.
Room: TypeAlias = Literal["block", "slot", "sequence"]


class Payload(Protocol):
    """A model's state for one block, as the engine that made it understands it."""

    @property
    def nbytes(self) -> int:
        """The memory that the state occupies, in bytes."""
        ...

    def trim(self, end: int) -> Payload:
        """Return the state of the block's tokens before position `end` of the prompt.

        Only caches that are token-granular ask for it, and only where the model's layers can all be cut.
        """
        ...

    def bytes_before(self, end: int) -> int:
        """Return the memory that `trim(end)` would occupy, in bytes."""
        ...


@dataclass(frozen=True, slots=True)
class Block:
    """One stored block.

    Attributes:
        name: its hash (see `hashes`); empty in caches that keep whole sequences.
        start: position of its first token in the prompt, counted from 0.
        end: position after its last token.
        nbytes: what it occupies of the cache's capacity.
        payload: the model's state for it, counted or computed; None where its size is not known, and where
            nothing but its size is asked for.
        snapshot: whether a prompt can go on from `end` where layers cannot be cut.
    """

    name: bytes
    start: int
    end: int
    nbytes: int
    payload: Payload | None = None
    snapshot: bool = False


@dataclass(frozen=True, slots=True)
class Match:
    """What a cache can take over of one prompt.

    Attributes:
        reused: tokens that need no prefill; less than the prompt's length.
        blocks: the blocks that hold them, without gaps from the prompt's first token on; where layers can be
            cut they may hold more than `reused`, otherwise they end there.
        evicted: where the match is shorter for want of room, because something that was offered earlier is
            not there, the number of the lookup (from 1) in whose turn that was dropped or refused; None
            otherwise.
    """

    reused: int
    blocks: tuple[Block, ...] = ()
    evicted: int | None = None


@dataclass(frozen=True, slots=True)
class PromptBoundaries:
    """What a server knows of a stored sequence beside its ids. All positions are counted in tokens from 0.

    Attributes:
        prompt_tokens: length of the prompt; what follows in the sequence is the reply. None: there is no
            reply.
        generation_prompt: first token of the generation prompt; None where the server does not find it.
        persists: whether history has the generation prompt before the same reply.
        system_end: where the prompt parts from a render of its leading system messages (not developer
            messages) and an empty user turn; 0 where it has none.
        think_start: the think mark that opens the reply, where the prompt ends with one.
        ends_in_user: whether the last message is a user turn.
        turn_end: the last position that the next turn has too: where the generation prompt starts, or else
            where the text of the last user message does; 0 where there is no user message.
        user_headers: where the text stands with which the template opens a user turn, rising; tool results
            that it writes as user turns have it too.
        system_prefix: tokens of a render of all system messages, wherever they stand, up to the text of a
            user turn behind them; 0 where the prompt does not begin with that, or the server does not ask.
    """

    prompt_tokens: int | None = None
    generation_prompt: int | None = None
    persists: bool = False
    system_end: int = 0
    think_start: int | None = None
    ends_in_user: bool = True
    turn_end: int = 0
    user_headers: tuple[int, ...] = ()
    system_prefix: int = 0


NO_MARKS = PromptBoundaries()


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """Counts since the cache was made, except `blocks` and `bytes`, which say what it holds now.

    In caches without blocks, hits and misses are tokens, and the other counts are of whole sequences.

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

    def plus(self, **more: int) -> CacheStatistics:
        """Return the counts with more of some."""
        return replace(self, **{name: getattr(self, name) + count for name, count in more.items()})


class PrefixCache(Protocol):
    """One server's cache. A turn is: match, hold the match while prefilling the rest, store.

    The same cache serves an engine that computes and one that only counts; the former asks for the spans that
    the cache wants and gives a payload for each.
    """

    @property
    def kind(self) -> str:
        """The cache's name in reports."""
        ...

    @property
    def room(self) -> Room:
        """What is given up as a whole where there is no more room."""
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

        Where that depends on the positions at which states were copied, they are those of the sequence that
        was stored last, or what the rule makes of any sequence as long as nothing was.

        Args:
            shared: tokens that the prompt shares with a stored sequence.
            length: the prompt's length in tokens.
        """
        ...

    def wants_system_prefix(self, request: Request) -> bool:
        """Tell whether a lookup needs to know `PromptBoundaries.system_prefix`.

        Args:
            request: what the client sent.
        """
        ...

    def why_not(self, shared: int, length: int) -> str:
        """Say why an unlimited cache does not take over all that is shared, where something else than the
        size of its blocks, or the positions of states, decides that; "" otherwise.

        Args:
            shared: tokens that the prompt shares with a stored sequence.
            length: the prompt's length in tokens.
        """
        ...

    def match(self, ids: Ids, marks: PromptBoundaries = NO_MARKS) -> Match:
        """Look a prompt up; what it finds counts as used now.

        Args:
            ids: the prompt, shape `(n,)`.
            marks: what the server knows of it.
        """
        ...

    def probe(self, ids: Ids, marks: PromptBoundaries = NO_MARKS) -> int:
        """Return how many tokens of a prompt `match` would take over, and leave everything as it is."""
        ...

    def lift_limits(self) -> None:
        """Keep all that is stored from now on: no limit of bytes, sequences or blocks holds any more."""
        ...

    def pin(self, match: Match) -> AbstractContextManager[None]:
        """Keep a match's blocks from being dropped while the context lasts."""
        ...

    def spans(self, ids: Ids, match: Match, marks: PromptBoundaries = NO_MARKS) -> tuple[TokenRange, ...]:
        """Return the states that the cache wants of a sequence, by rising `end`.

        Args:
            ids: the sequence that is going to be stored.
            match: what was taken over of it.
            marks: what the server knows of it.
        """
        ...

    def store(
        self,
        ids: Ids,
        payloads: Sequence[Payload] | None = None,
        *,
        match: Match | None = None,
        marks: PromptBoundaries = NO_MARKS,
    ) -> None:
        """Take in what a turn computed.

        Args:
            ids: the sequence whose state is to be kept, shape `(n,)`.
            payloads: the states of `spans(ids, match, marks)`, in the same order. None from an engine that
                only counts.
            match: what was taken over of the sequence; None for nothing.
            marks: what the server knows of it.
        """
        ...


def reusable(shared: int, length: int, block_size: int) -> int:
    """Return how many tokens of a prompt a cache of whole, trimmable blocks can take over.

    At least one token has to run, for its logits: where the whole prompt is there, its last one is given up.

    Args:
        shared: tokens that the prompt shares with a stored sequence.
        length: the prompt's length in tokens.
        block_size: tokens per block.
    """
    return max(0, min(min(shared, length) // block_size * block_size, length - 1))


def last_position(positions: Sequence[int], limit: int) -> int:
    """Return the largest position that is at most `limit`; 0 where none is."""
    return max((at for at in positions if at <= limit), default=0)


def trim(blocks: Sequence[Block], end: int) -> tuple[Block, ...]:
    """Return what blocks hold before position `end`; a block that reaches further is cut there."""
    kept = []
    for block in blocks:
        if block.end <= end:
            kept.append(block)
        elif block.start < end:
            payload = None if block.payload is None else block.payload.trim(end)
            nbytes = payload.nbytes if payload else 0
            kept.append(replace(block, end=end, nbytes=nbytes, payload=payload, snapshot=False))
    return tuple(kept)


def bytes_before(blocks: Sequence[Block], end: int) -> int:
    """Return the bytes of what blocks hold before position `end`, as `cut` would leave it."""
    held = 0
    for block in blocks:
        if block.end <= end:
            held += block.nbytes
        elif block.start < end and block.payload is not None:
            held += block.payload.bytes_before(end)
    return held
