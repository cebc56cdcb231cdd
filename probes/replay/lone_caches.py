"""What each conversation would get from the server's cache if it were alone and the cache without a limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..caches.base import NO_MARKS, PromptBoundaries

if TYPE_CHECKING:
    from ..caches.base import PrefixCache
    from ..tokenization.tokens import Ids

#: An id that no vocabulary has, for tokens that are not those of any stored sequence.
_OTHER = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Step:
    """One stored sequence of a chain of requests, each the predecessor of the next.

    Attributes:
        turn: the request.
        prompt_tokens: length of its prompt; the rest of the sequence is of its reply.
        marks: what the server knows of the sequence.
    """

    turn: int
    prompt_tokens: int
    marks: PromptBoundaries = NO_MARKS


@dataclass(frozen=True, slots=True)
class Alone:
    """What a request gets from a cache that holds its predecessor's chain only.

    Attributes:
        reused: tokens of its prompt.
        unaltered: tokens of a prompt as long that begins with all that the predecessor had.
    """

    reused: int
    unaltered: int


class LoneCaches:
    """A cache for each conversation that holds nothing but the chain of its last request.

    Args:
        new_cache: makes an empty cache of the server.
        sequence: returns the sequence that a turn stored.
    """

    def __init__(self, new_cache: Callable[[], PrefixCache], sequence: Callable[[int], Ids]) -> None:
        self._new_cache = new_cache
        self._sequence = sequence
        self._tips: dict[int, PrefixCache] = {}

    def follow(
        self,
        predecessor: int | None,
        chain: Sequence[Step],
        ids: Ids,
        kept: int,
        marks: PromptBoundaries = NO_MARKS,
    ) -> Alone:
        """Look a prompt up.

        Args:
            predecessor: the request that it continues and that stored a sequence; None for none.
            chain: that request's chain, from the conversation's beginning to it.
            ids: the prompt, shape `(n,)`.
            kept: tokens of the prompt before what its predecessor did not have.
            marks: what the server knows of the prompt.
        """
        if predecessor is None:
            return Alone(0, 0)
        cache = self._at(predecessor, chain)
        stored = self._sequence(predecessor)
        prompt = np.full(len(ids), _OTHER, np.int32)
        same = max(0, min(len(stored), kept))
        prompt[:same] = stored[:same]
        return Alone(cache.probe(ids, marks), cache.probe(prompt, self._marks(chain)))

    def would_reuse(self, predecessor: int, chain: Sequence[Step], shared: int, length: int) -> int:
        """Tell how much of a prompt of a length is reused that shares some tokens with what is stored.

        Where it shares more than is stored, because the predecessor would have stored more, all of that
        counts which the cache gives back by the same rule.

        Args:
            predecessor: the request that it continues.
            chain: as of `follow`.
            shared: tokens that it shares with the predecessor's sequence.
            length: its length in tokens.
        """
        cache = self._at(predecessor, chain)
        stored = self._sequence(predecessor)
        prompt = np.full(length, _OTHER, np.int32)
        same = min(len(stored), shared)
        prompt[:same] = stored[:same]
        reused = cache.probe(prompt, self._marks(chain))
        return reused if shared <= len(stored) else max(reused, cache.reusable(shared, length))

    def store(self, predecessor: int | None, step: Step, ids: Ids, sequence: Ids) -> None:
        """Take a turn in behind its predecessor; `follow` has to be asked about it first.

        Args:
            predecessor: as of `follow`.
            step: the turn.
            ids: its prompt.
            sequence: what it stores.
        """
        cache = self._tips.pop(predecessor) if predecessor is not None else self._empty()
        cache.store(sequence, match=cache.match(ids, step.marks), marks=step.marks)
        self._tips[step.turn] = cache

    def _at(self, turn: int, chain: Sequence[Step]) -> PrefixCache:
        """Return the cache with a request's chain; it is made again where a later request went on from it."""
        if turn not in self._tips:
            cache = self._empty()
            for step in chain:
                sequence = self._sequence(step.turn)
                match = cache.match(sequence[: step.prompt_tokens], step.marks)
                cache.store(sequence, match=match, marks=step.marks)
            self._tips[turn] = cache
        return self._tips[turn]

    @staticmethod
    def _marks(chain: Sequence[Step]) -> PromptBoundaries:
        """Return what the server would know of a prompt that begins as its predecessor did."""
        return chain[-1].marks if chain else NO_MARKS

    def _empty(self) -> PrefixCache:
        cache = self._new_cache()
        cache.lift_limits()
        return cache
