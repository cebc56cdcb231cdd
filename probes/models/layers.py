"""What a cache has to know of a model's layers: whether their state can be cut."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import UsageError

_KIND = re.compile(r"plain|hybrid|recurrent|quantised:\d+|(?:rotating|chunked):(\d+)")


@dataclass(frozen=True, slots=True)
class Layers:
    """The kinds of state among a model's layers.

    Attributes:
        window: the largest sliding window in tokens; None where there is none.
        recurrent: whether some layers keep one running state, which has no earlier positions.
    """

    window: int | None = None
    recurrent: bool = False

    @property
    def trimmable(self) -> bool:
        """Whether the state can be cut back to any token, however long the prompt is."""
        return not self.window and not self.recurrent

    def sliceable_at(self, length: int) -> bool:
        """Tell whether the state after `length` tokens can be cut back to any token."""
        return not self.recurrent and (self.window is None or length < self.window)

    @classmethod
    def of(cls, kind: str) -> Layers:
        """Read a kind: `plain`, `rotating:WINDOW`, `chunked:SIZE`, `quantised:BITS`, `hybrid` or `recurrent`.

        Several are joined by `+`. Raises UsageError for anything else.
        """
        window = None
        recurrent = False
        for part in kind.split("+"):
            match = _KIND.fullmatch(part)
            if match is None or match[1] == "0":
                raise UsageError(
                    f"{kind!r} is not a kind of layers",
                    fix="use plain, hybrid, recurrent, rotating:WINDOW, chunked:SIZE or quantised:BITS",
                )
            recurrent |= part in ("hybrid", "recurrent")
            if match[1]:
                window = max(window or 0, int(match[1]))
        return cls(window, recurrent)
