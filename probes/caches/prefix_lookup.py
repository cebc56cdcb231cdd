"""How servers choose among stored sequences the one that a prompt goes on from."""

from __future__ import annotations

from typing import TypeAlias

from .sequence_cache import SequenceEntry
from .sequences import TokenSequence

#: Stored sequences, each with the number of tokens that a prompt shares with it.
Shared: TypeAlias = list[tuple[SequenceEntry, int]]


def longest_prefix(shared: Shared, prompt: TokenSequence, least: int = 1) -> tuple[SequenceEntry | None, int]:
    """Return the longest sequence, of at least so many tokens, that a prompt goes on from, and its length."""
    prefixes = (entry for entry, common in shared if least <= common == entry.length < prompt.length)
    longest = max(prefixes, key=lambda entry: entry.length, default=None)
    return longest, longest.length if longest else 0


def longest_continuation(shared: Shared, prompt: TokenSequence) -> SequenceEntry | None:
    """Return the longest sequence that goes on from the whole prompt; among equals the first sorted."""
    best: SequenceEntry | None = None
    for entry, common in shared:
        if common == prompt.length < entry.length and (
            best is None
            or entry.length > best.length
            or (entry.length == best.length and entry.ids.before(best.ids))
        ):
            best = entry
    return best


def neighbour(shared: Shared, prompt: TokenSequence) -> tuple[SequenceEntry | None, int]:
    """Return which of the two sequences sorted beside a prompt shares more with it, and how much.

    Where one is equal to the prompt, it stands in the place of the one behind, and is not taken.
    """
    before: tuple[SequenceEntry | None, int] = (None, 0)
    after: tuple[SequenceEntry | None, int] = (None, 0)
    # On either side, what shares more with the prompt stands nearer to it.
    for entry, common in shared:
        if entry.ids.before(prompt, common):
            best = before[0]
            if best is None or common > before[1] or (common == before[1] and best.ids.before(entry.ids)):
                before = entry, common
        else:
            best = after[0]
            if best is None or common > after[1] or (common == after[1] and entry.ids.before(best.ids)):
                after = entry, common
    equal = after[0] is not None and after[0].length == after[1] == prompt.length
    nearest = after if after[1] > before[1] and not equal else before
    return nearest if nearest[1] else (None, 0)
