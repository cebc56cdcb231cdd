"""Tokens that a prompt shares with a stored sequence and the cache does not give back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..caches.base import Match, PrefixCache, reusable
from .lone_caches import Alone
from .replay_report import Remedy, Room, UnreusedTokens

#: Smaller blocks whose gain is told, in tokens, the largest first.
_SMALLER = (64, 16)
_MORE_ROOM: Mapping[Room, str] = {
    "block": "a larger cache",
    "sequence": "a larger cache",
    "slot": "a slot for each conversation (--parallel)",
}


@dataclass(frozen=True, slots=True)
class Eviction:
    """Who took a prompt's room.

    Attributes:
        turn: the request in whose turn it was.
        conversation: its conversation.
    """

    turn: int
    conversation: int


def cache_misses(
    cache: PrefixCache, match: Match, alone: Alone, shared: int, length: int, eviction: Eviction
) -> tuple[UnreusedTokens, ...]:
    """Tell a block's rest from what was evicted.

    Args:
        cache: the cache.
        match: what it gave back.
        alone: what the conversation's own cache would have given.
        shared: tokens that the prompt shares at most with what its conversation stored.
        length: length of the prompt.
        eviction: who took the room, if anything was evicted.
    """
    unlimited = max(alone.reused, match.reused)
    usable = min(shared, length - 1)  # the last token has to run for its logits
    size = cache.block_size
    found = []
    if usable > unlimited:
        gains = ((each, reusable(usable, length, each) - unlimited) for each in _SMALLER if each < size)
        remedy = next(
            (Remedy("cache", f"blocks of {each} tokens", won) for each, won in gains if won > 0), None
        )
        found.append(
            UnreusedTokens("cache-granularity", usable - unlimited, _rest(usable, unlimited, size), remedy)
        )
    lost = evicted_tokens(match.reused, alone, length)
    if lost:
        room: Room = "block" if size > 1 else "slot" if cache.kind == "llama.cpp" else "sequence"
        what = {
            "block": f"block {match.reused // size} was dropped, or found no room,",
            "slot": "the slot was overwritten",
            "sequence": "a sequence that has them was dropped, or found no room,",
        }[room]
        said = f"{what} in turn {eviction.turn}, by conversation {eviction.conversation}"
        remedy = Remedy("cache", _MORE_ROOM[room], lost)
        found.append(
            UnreusedTokens("evicted", lost, said, remedy, room, eviction.turn, eviction.conversation)
        )
    return tuple(found)


def evicted_tokens(reused: int, alone: Alone, length: int) -> int:
    """Return the avoidable tokens that a prompt has besides those that it would have alone."""
    needed = max(1, length - alone.unaltered)
    return max(0, length - reused - needed) - max(0, length - max(reused, alone.reused) - needed)


def _rest(usable: int, unlimited: int, size: int) -> str:
    """Say why the cache does not give back the last of the shared tokens."""
    if usable - unlimited < size:
        return f"the shared part ends {usable - unlimited:,} tokens into a block of {size}"
    if unlimited:
        return f"the last position that this cache can go on from is token {unlimited:,}"
    return "the cache has no position in the shared part that it can go on from"
