"""Tail blocks: the states of prompts' ends that are no block ends.

oMLX keeps them since autumn 2026 for models whose layers cannot be cut at any token (docs/servers.md, section
1.18; read in jundot/omlx's `cache/paged_cache.py` and abdufelsayed/molto).
"""

from __future__ import annotations

from collections.abc import Iterator

MOST_TAILS = 8
MOST_PARENTS = 4096


def tail_position(reused: int, prefilled: int, marker: int, block_size: int) -> int | None:
    """Return where a prompt's tail snapshot is taken, None where there is none.

    Args:
        reused: tokens that the cache gave.
        prefilled: tokens that the prefill covers behind them: all others of the prompt but its last.
        marker: the first token of the generation prompt, 0 where that is not known.
        block_size: tokens per block; a block end needs no tail.
    """
    end = reused + prefilled
    position = marker or end
    return position if reused < position <= end and position % block_size else None


class TailIndex:
    """The tails of each full block, by the block's name; None stands for the beginning of a prompt."""

    def __init__(self) -> None:
        self._tails: dict[bytes | None, dict[bytes, int]] = {}

    def add(self, parent: bytes | None, name: bytes, length: int) -> tuple[bytes, ...]:
        """Register a tail; return the names of those that are given up for it.

        Args:
            parent: the full block before it.
            name: its own name.
            length: how many tokens it has.
        """
        dropped: list[bytes] = []
        if parent not in self._tails and len(self._tails) == MOST_PARENTS:
            dropped += [name for tails in self._tails.values() for name in tails]
            self._tails.clear()
        tails = self._tails.setdefault(parent, {})
        tails.pop(name, None)
        if len(tails) == MOST_TAILS:
            oldest = next(iter(tails))
            del tails[oldest]
            dropped.append(oldest)
        tails[name] = length
        return tuple(dropped)

    def longest_first(self, parent: bytes | None, most: int) -> Iterator[tuple[bytes, int]]:
        """Yield name and length of a block's tails that have at most `most` tokens."""
        tails = self._tails.get(parent, {})
        for name, length in sorted(tails.items(), key=lambda tail: -tail[1]):
            if length <= most:
                yield name, length

    def remove(self, parent: bytes | None, name: bytes) -> None:
        """Forget a tail whose block is gone."""
        self._tails[parent].pop(name)
