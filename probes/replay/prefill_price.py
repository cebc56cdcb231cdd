"""What a turn prefills, and what it would where its prompts shared more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


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
