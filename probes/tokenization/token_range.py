"""A stretch of a prompt, in tokens; apart from what counts them, which needs NumPy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenRange:
    """Consecutive tokens of a prompt whose state a cache wants.

    Attributes:
        start: position of the first token, counted from 0.
        end: position after the last one.
        snapshot: whether a later prompt is to resume at `end`, so that layers which cannot be trimmed have to
            be copied when the prefill is there.
    """

    start: int
    end: int
    snapshot: bool = False
