"""Tokens that a prompt shares with a stored sequence and the cache does not give back."""

from __future__ import annotations

from collections.abc import Sequence

from ..caches.base import Match, PrefixCache, reusable
from .replay_report import Remedy, UnreusedTokens

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
        gains = ((each, reusable(usable, length, each) - unlimited) for each in _SMALLER if each < size)
        remedy = next(
            (Remedy("cache", f"blocks of {each} tokens", won) for each, won in gains if won > 0), None
        )
        found.append(
            UnreusedTokens("cache-granularity", usable - unlimited, _rest(usable, unlimited, size), remedy)
        )
    if unlimited > match.reused and match.evicted is not None:
        turn = looked_up[match.evicted - 1]
        what = f"block {match.reused // size}" if size > 1 else "a sequence that has them"
        said = f"{what} was dropped, or found no room, in turn {turn}"
        remedy = Remedy("cache", "a larger cache", unlimited - match.reused)
        found.append(UnreusedTokens("evicted", unlimited - match.reused, said, remedy))
    return tuple(found)


def _rest(usable: int, unlimited: int, size: int) -> str:
    """Say why the cache does not give back the last of the shared tokens."""
    if usable - unlimited < size:
        return f"the shared prefix ends {usable - unlimited:,} tokens into a block of {size}"
    if unlimited:
        return f"the last position from which this cache can continue is token {unlimited:,}"
    return "the cache has no position in the shared prefix from which it can continue"
