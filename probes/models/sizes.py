"""What a model's state occupies, worked out from its sizes: what the engine would hold, without an engine.

The rules are those by which `states` copies it, so that both engines count the same bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..tokenization.token_range import TokenRange


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a model's state, in bytes.

    Attributes:
        bytes_per_token: of full attention, over all layers.
        windows: sizes of the sliding windows in tokens, each with its bytes per token over all its layers.
        recurrent_bytes: of one snapshot of all recurrent layers, however long the prompt is.
    """

    bytes_per_token: int = 0
    windows: tuple[tuple[int, int], ...] = ()
    recurrent_bytes: int = 0

    @property
    def bytes_per_snapshot(self) -> int:
        """Bytes of what cannot be cut, at one position beyond the first window."""
        return self.recurrent_bytes + sum(size * each for size, each in self.windows)

    def counted(self, spans: Sequence[TokenRange]) -> tuple[CountedState, ...]:
        """Return what is held of each of some spans, given by rising `end`.

        A window is copied where the prefill halts for a snapshot, and reaches back from there: of a span that
        ends before that position less is held, and nothing of one that no later snapshot looks back to.
        """
        stops = [span.end for span in spans if span.snapshot]
        states = []
        for span in spans:
            at = bisect_left(stops, span.end)
            ahead = stops[at] - span.end if at < len(stops) else None
            held = tuple(
                0 if ahead is None else max(0, min(span.end - span.start, size - ahead))
                for size, _ in self.windows
            )
            states.append(CountedState(self, span.start, span.end, held, span.snapshot))
        return tuple(states)


@dataclass(frozen=True, slots=True)
class CountedState:
    """A model's state for some consecutive tokens, of which only the size is known.

    Attributes:
        sizes: of the model.
        start: position of the first token, counted from 0.
        end: position after the last one.
        held: how many of the last tokens are there of each window.
        snapshot: whether the recurrent layers' state at `end` is there.
    """

    sizes: Sizes
    start: int
    end: int
    held: tuple[int, ...] = ()
    snapshot: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of all that it holds."""
        sizes = self.sizes
        sliding = sum(held * each for held, (_, each) in zip(self.held, sizes.windows, strict=True))
        full = (self.end - self.start) * sizes.bytes_per_token
        return full + sliding + self.snapshot * sizes.recurrent_bytes

    def trim(self, end: int) -> CountedState:
        """Return the state of the tokens before position `end`, without that of recurrent layers."""
        held = tuple(max(0, held - (self.end - end)) for held in self.held)
        return replace(self, end=end, held=held, snapshot=False)

    def bytes_before(self, end: int) -> int:
        """Return what would be left of it after `cut`, in bytes."""
        return self.trim(end).nbytes


def counted(
    spans: Sequence[TokenRange], sizes: Sizes | None, capacity_bytes: int | None
) -> Sequence[CountedState | None]:
    """Return what a cache holds of spans that nobody computed; None for each where no size is known.

    Args:
        spans: by rising `end`.
        sizes: of the model's state.
        capacity_bytes: the cache's limit.

    Raises:
        ValueError: there is a limit, but no size.
    """
    if sizes is not None:
        return sizes.counted(spans)
    if capacity_bytes is not None:
        raise ValueError("a capacity in bytes needs payloads or sizes")
    return (None,) * len(spans)
