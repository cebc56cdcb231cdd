"""Tokens that a prompt shares with a stored sequence and the cache does not give back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...caches.base import Match, PrefixCache, Room, reusable
from ...tokenization.tokens import common_prefix_ids
from ..lone_caches import Alone
from ..replay_report import Remedy, UnreusedTokens

if TYPE_CHECKING:
    from ...tokenization.tokens import Ids

#: Shortest stretches that llama.cpp may be told to move, the longest first.
_LEAST = (256, 128, 64, 32, 16, 8)
#: Share of all that could be moved that a longer least stretch may miss.
_NEARLY_ALL = 0.9
#: Smaller blocks whose gain is told, in tokens, the largest first.
_SMALLER = (64, 16)
_MORE_ROOM: Mapping[Room, str] = {
    "block": "a larger cache",
    "sequence": "a larger cache",
    "slot": "a slot for each conversation (--parallel N, and id_slot in its requests)",
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
        why = cache.why_not(shared, length)
        remedy = None if why else _smaller_blocks(usable, unlimited, length, size)
        why = why or _rest(usable, unlimited, size)
        found.append(UnreusedTokens("cache-granularity", usable - unlimited, why, remedy))
    lost = evicted_tokens(match.reused, alone, length)
    if lost:
        room = cache.room
        what = {
            "block": f"block {match.reused // size} was dropped, or found no room,",
            "slot": "its slot was given to another prompt",
            "sequence": "a sequence that has them was dropped, or found no room,",
        }[room]
        said = f"{what} in turn {eviction.turn}, by conversation {eviction.conversation}"
        # What was stored can reach into what is new: it begins with the generation prompt that was stored.
        saves = max(lost, alone.reused - match.reused)
        # More memory changes nothing for a slot that other requests are given.
        apply = () if room == "slot" else ("cache:larger",)
        remedy = Remedy("cache", _MORE_ROOM[room], lost, saves=saves, apply=apply)
        found.append(
            UnreusedTokens("evicted", lost, said, remedy, room, eviction.turn, eviction.conversation)
        )
    return tuple(found)


def evicted_tokens(reused: int, alone: Alone, length: int) -> int:
    """Return the avoidable tokens that a prompt has besides those that it would have alone."""
    needed = max(1, length - alone.unaltered)
    return max(0, length - reused - needed) - max(0, length - max(reused, alone.reused) - needed)


def _smaller_blocks(usable: int, unlimited: int, length: int, size: int) -> Remedy | None:
    for each in _SMALLER:
        won = reusable(usable, length, each) - unlimited
        if each < size and won > 0:
            return Remedy("cache", f"blocks of {each} tokens", won, saves=won, apply=(f"cache:block={each}",))
    return None


def _rest(usable: int, unlimited: int, size: int) -> str:
    """Say why the cache does not give back the last of the shared tokens."""
    if usable - unlimited < size:
        return f"the shared prefix ends {usable - unlimited:,} tokens into a block of {size}"
    if unlimited:
        return f"the last position from which this cache can continue is token {unlimited:,}"
    return "the cache has no position in the shared prefix from which it can continue"


def shifted(stored: Ids, prompt: Ids) -> tuple[int, int] | None:
    """Return what llama.cpp would move of a slot to other positions (`--cache-reuse N`).

    Its server looks, behind the shared beginning, for the prompt's next tokens further on in the slot, takes
    a stretch of at least N tokens that continues alike, and continues behind that in both.

    Returns:
        N, the largest of the usual ones that moves nearly all that can be, and the tokens moved; None where
        nothing can.
    """
    moved = {least: _moved(stored, prompt, least) for least in _LEAST}
    most = max(moved.values())
    if not most:
        return None
    return next((least, tokens) for least, tokens in moved.items() if tokens >= _NEARLY_ALL * most)


def _moved(stored: Ids, prompt: Ids, least: int) -> int:
    at = common_prefix_ids(stored, prompt)
    slot, total = at, 0
    while at < len(prompt) - 1:
        starts = slot + np.flatnonzero(stored[slot:] == prompt[at])
        for start in map(int, starts):
            alike = common_prefix_ids(stored[start:], prompt[at:])
            if alike >= least:
                total, slot, at = total + alike, start + alike, at + alike
                break
        else:
            return total
    return total
