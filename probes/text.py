"""Comparing texts as long as prompts are, and writing chat-template kwargs as texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_FIRST_STEP = 4096


def written(value: Any) -> str:
    """Write the value of a chat-template kwarg as `--kwargs` takes it: a text as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def settings_text(values: Mapping[str, Any], joint: str = ", ") -> str:
    """Write chat-template kwargs as `NAME=VALUE`."""
    return joint.join(f"{name}={written(value)}" for name, value in values.items())


def common_prefix(a: str, b: str) -> int:
    """Return how many leading characters two texts share."""
    low, high, step = 0, min(len(a), len(b)), _FIRST_STEP
    # Slices compare at memory speed, characters do not; in growing steps, since many texts differ early.
    while low < high:
        end = min(high, low + step)
        if a[low:end] != b[low:end]:
            high = end
            break
        low, step = end, step * 4
    while high - low > 1:  # a[:low] == b[:low] and a[:high] != b[:high]
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low
