"""Tokens that a prompt shares with a stored sequence and the cache does not give back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..caches.base import Match, PrefixCache, reusable
from ..tokenization.tokens import common_prefix_ids
from .replay_report import Remedy, UnreusedTokens

if TYPE_CHECKING:
    from ..tokenization.tokens import Ids

#: Shortest stretches that llama.cpp may be told to move, the longest first.
_LEAST = (256, 128, 64, 32, 16, 8)
#: Share of all that could be moved that a longer least stretch may miss.
_NEARLY_ALL = 0.9
#: Smaller blocks whose gain is told, in tokens, the largest first.
_SMALLER = (64, 16)


def cache_misses(
    cache: PrefixCache, match: Match, shared: int, length: int, looked_up: Sequence[int]
) -> tuple[UnreusedTokens, ...]:
    """Tell a block's rest from what was dropped.

    Args:
        cache: the cache.
        match: what it gave back.
        shared: tokens that the prompt shares with the closest stored sequence.
        length: length of the prompt.
        looked_up: the turns whose prompts were looked up, in order.
    """
    unlimited = max(cache.reusable(shared, length), match.reused)
    usable = min(shared, length - 1)  # the last token has to run for its logits
    size = cache.block_size
    found = []
    if usable > unlimited:
        tokens = usable - unlimited
        remedy = _smaller_blocks(usable, unlimited, length, size)
        found.append(UnreusedTokens("cache-granularity", tokens, _rest(usable, unlimited, size), remedy))
    if unlimited > match.reused and match.evicted is not None:
        turn = looked_up[match.evicted - 1]
        what = f"block {match.reused // size}" if size > 1 else "a sequence that has them"
        said = f"{what} was dropped, or found no room, in turn {turn}"
        lost = unlimited - match.reused
        remedy = Remedy("cache", "a larger cache", lost, saves=lost, apply=("cache:larger",))
        found.append(UnreusedTokens("evicted", lost, said, remedy))
    return tuple(found)


def _smaller_blocks(usable: int, unlimited: int, length: int, size: int) -> Remedy | None:
    for each in _SMALLER:
        won = reusable(usable, length, each) - unlimited
        if each < size and won > 0:
            return Remedy("cache", f"blocks of {each} tokens", won, saves=won, apply=(f"cache:block={each}",))
    return None


def _rest(usable: int, unlimited: int, size: int) -> str:
    """Say why the cache does not give back the last of the shared tokens."""
    if usable - unlimited < size:
        return f"the shared part ends {usable - unlimited:,} tokens into a block of {size}"
    if unlimited:
        return f"the last position that this cache can go on from is token {unlimited:,}"
    return "the cache has no position in the shared part that it can go on from"


def shifted(stored: Ids, prompt: Ids) -> tuple[int, int] | None:
    """Return what llama.cpp would move of a slot to other positions (`--cache-reuse N`).

    Its server looks, behind the shared beginning, for the prompt's next tokens further on in the slot, takes
    a stretch of at least N tokens that goes on alike, and goes on behind that in both.

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
