"""Comparing texts as long as prompts are."""

from __future__ import annotations


def common_prefix(a: str, b: str) -> int:
    """Return how many leading characters two texts share."""
    high = min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    low = 0  # a[:low] == b[:low] and a[:high] != b[:high]; slices compare at memory speed, characters do not
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low
