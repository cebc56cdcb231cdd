"""The caches of a replayed session: the server's, and those that its conversations would have alone.

They know token ids only, so that a session can go through other caches without being rendered again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from .explanations.cache_misses import Eviction, cache_misses
from .lone_caches import Alone, LoneCaches, Step

if TYPE_CHECKING:
    from ..caches.base import Match, PrefixCache
    from ..tokenization.tokens import Ids
    from ..transcripts.grouping.conversations import Continuation
    from .replay_report import UnreusedTokens


@dataclass(frozen=True, slots=True)
class PrefillPrice:
    """What a turn prefills, in tokens (counted).

    Attributes:
        reuse: how much of a prompt the cache takes over, of the tokens that it shares and its length.
        length: the prompt's length.
        reused: what the cache gave back of it.
        unavoidable: what had to be prefilled whatever the client and the template do.
        block_size: tokens per block of the cache; 1 where it has none.
        shifts: whether the server can move states to other positions (llama.cpp's `--cache-reuse`).
    """

    reuse: Callable[[int, int], int]
    length: int
    reused: int
    unavoidable: int
    block_size: int = 1
    shifts: bool = False

    @property
    def prefilled(self) -> int:
        """The tokens that were prefilled."""
        return self.length - self.reused

    @property
    def avoidable(self) -> int:
        """Those of them that are waste."""
        return max(0, self.prefilled - self.unavoidable)

    def with_(self, shared: int, length: int) -> int:
        """Return what would be prefilled of a prompt of another length that shares other tokens."""
        return length - min(self.reuse(min(shared, length), length), length - 1)


class NewCache(Protocol):
    """Makes the caches of a session."""

    def __call__(self, *, limited: bool = True) -> PrefixCache:
        """Return an empty cache of the server, or one that keeps everything."""
        ...


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """What is known of a turn's tokens, whatever the caches.

    Attributes:
        step: its stored sequence, as its conversation's own cache gets it.
        place: what it continues.
        base: the turn whose sequence it went on from; None where a conversation begins.
        kept: tokens of its prompt before what that turn did not have.
        shared: tokens of its prompt that are shared at most with what its conversation stored before.
    """

    step: Step
    place: Continuation
    base: int | None
    kept: int
    shared: int


@dataclass(frozen=True, slots=True)
class TurnPrefill:
    """What a turn prefills, in tokens (counted).

    Attributes:
        match: what the cache gave back.
        reprefill: tokens of the prompt that it did not.
        unavoidable: those of them that had to be prefilled whatever the client and the template do.
        losses: shared tokens that the cache does not give back, by reason.
    """

    match: Match
    reprefill: int
    unavoidable: int
    losses: tuple[UnreusedTokens, ...]


class SessionCaches:
    """A server's cache, and one for each conversation that holds nothing else. A turn is: look up, store.

    Args:
        new_cache: makes the caches.
        sequence: returns the sequence that a turn stored.
        shifts: as of `PrefillPrice`.

    Attributes:
        server: the server's cache; whoever looks a turn up stores its sequence there.
    """

    def __init__(self, new_cache: NewCache, sequence: Callable[[int], Ids], *, shifts: bool = False) -> None:
        self.server = new_cache()
        self._lone = LoneCaches(lambda: new_cache(limited=False), sequence)
        self._shifts = shifts
        self._turns: dict[int, StoredTurn] = {}
        self._looked_up: list[Continuation] = []

    def look_up(self, turn: StoredTurn, ids: Ids) -> TurnPrefill:
        """Look the prompt of a turn up, of shape `(n,)`."""
        base = turn.base
        alone = Alone(0, 0)
        if base is not None:
            alone = self._lone.follow(base, self._chain(base), ids, turn.kept, turn.step.marks)
        match = self.server.match(ids, turn.step.marks)
        self._looked_up.append(turn.place)
        reprefill = unavoidable = len(ids) - match.reused
        losses: tuple[UnreusedTokens, ...] = ()
        if base is not None:
            unavoidable = min(reprefill, max(1, len(ids) - alone.unaltered))
            eviction = self._eviction(turn.place, match)
            losses = cache_misses(self.server, match, alone, turn.shared, len(ids), eviction)
        return TurnPrefill(match, reprefill, unavoidable, losses)

    def price(self, turn: StoredTurn, found: TurnPrefill) -> PrefillPrice:
        """Return what a turn prefills, and what it would by the rule of its conversation's own cache."""

        def reuse(shared: int, length: int) -> int:
            if turn.base is None:
                return 0
            return self._lone.would_reuse(turn.base, self._chain(turn.base), shared, length)

        length, reused = turn.step.prompt_tokens, found.match.reused
        return PrefillPrice(reuse, length, reused, found.unavoidable, self.server.block_size, self._shifts)

    def store(self, turn: StoredTurn, ids: Ids, sequence: Ids) -> None:
        """Take a turn in behind those of its conversation.

        Args:
            turn: the turn, which was looked up.
            ids: its prompt, shape `(n,)`.
            sequence: what it stores: the prompt, and what is stored of the reply.
        """
        self._lone.store(turn.base, turn.step, ids, sequence)
        self._turns[turn.step.turn] = turn

    def conversation(self, turn: int) -> Iterable[int]:
        """Return the turns of a stored turn's chain, the first one first."""
        return [step.turn for step in self._chain(turn)]

    def _chain(self, turn: int) -> tuple[Step, ...]:
        """Return the steps of a request's chain, the first one first."""
        steps: list[Step] = []
        at: int | None = turn
        while at is not None:
            stored = self._turns[at]
            steps.append(stored.step)
            at = stored.base
        return tuple(reversed(steps))

    def _eviction(self, place: Continuation, match: Match) -> Eviction:
        """Name the request that took the room: the one in whose turn it was, else the last one beside."""
        by = self._looked_up[match.evicted - 1] if match.evicted is not None else None
        if by is None or by.turn == place.turn:
            others = (each for each in reversed(self._looked_up) if each.conversation != place.conversation)
            by = next(others, by or place)
        return Eviction(by.turn, by.conversation)
