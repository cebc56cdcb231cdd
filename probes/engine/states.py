"""A model's state during a prefill: cut into blocks, and put back so that a prompt can go on from there.

mlx-lm keeps the state of a model in a list of cache objects, some of them nested in `CacheList`. What the
rest of a prompt needs of each decides how it is stored:

* full attention needs K and V of every position, so they can be cut at any token (`kv`);
* a sliding window needs those of its last positions (`sliding_window`);
* a recurrent layer needs its state at exactly one position, which cannot be cut: it is copied, a snapshot,
  when the prefill is there (`recurrent`).

Works on attributes that mean the same in mlx-lm 0.30 to 0.33. A cache's `state` does not: 0.32 changed it.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ..models.sizes import Sizes
from ..tokenization.token_range import TokenRange
from .arrays import copied, positions, sliced
from .kv import PlainKV, QuantisedKV
from .recurrent import RecurrentState
from .sliding_window import ChunkedKV, RotatingKV, drops_too_much

if TYPE_CHECKING:
    import mlx.core as mx

    from .arrays import Arrays


class Part(Protocol):
    """One of mlx-lm's cache objects that keeps something, and how to copy that out and back in.

    Attributes:
        kind: `plain`, `quantised:BITS`, `rotating:WINDOW`, `chunked:SIZE` or `recurrent`.
        window: how many of the last positions the rest of a prompt needs; None where it needs all, 0 where it
            needs none but a snapshot.
    """

    @property
    def kind(self) -> str:
        """What it keeps."""
        ...

    @property
    def window(self) -> int | None:
        """How far back the rest of a prompt looks."""
        ...

    @property
    def offset(self) -> int | None:
        """How many tokens it has seen; None where it does not count."""
        ...

    def arrays(self) -> list[mx.array]:
        """Return all that it holds, for `mx.eval`."""
        ...

    def trim(self, start: int, end: int) -> Arrays:
        """Return copies, not yet evaluated, of positions `start` to `end`; of the state if `window` is 0."""
        ...

    def put(self, pieces: Sequence[Arrays], length: int) -> None:
        """Fill the empty cache object, as if `length` tokens had run.

        Args:
            pieces: what `cut` gave for consecutive positions, up to `length` or a little more; of a recurrent
                layer the one snapshot.
            length: how many tokens have been seen then.
        """
        ...


@dataclass(frozen=True, slots=True)
class StateBlock:
    """A model's state for some consecutive tokens of a prompt, given what stands before them.

    Attributes:
        start: position of the first token, counted from 0.
        end: position after the last one.
        layers: what each part that keeps K and V has of it. Of full attention they are those of all its
            tokens, each `(1, heads, tokens, width)`, quantised ones as three arrays each. Of a sliding window
            they are those of its last tokens, or nothing where no later snapshot looks back that far.
        recurrent: the state at `end` of each recurrent part; nothing where no snapshot was asked for.
    """

    start: int
    end: int
    layers: tuple[Arrays, ...]
    recurrent: tuple[Arrays, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(
            array.nbytes for layer in (*self.layers, *self.recurrent) for array in layer if array is not None
        )

    def trim(self, end: int) -> StateBlock:
        """Return the tokens before position `end` as a block of their own, without recurrent state.

        Raises:
            ValueError: `end` is not inside the block.
        """
        import mlx.core as mx

        if not self.start < end <= self.end:
            raise ValueError(f"position {end} is not in the block from {self.start} to {self.end}")
        layers = tuple(copied(layer, 0, max(0, positions(layer) - (self.end - end))) for layer in self.layers)
        mx.eval(layers)
        kept = tuple(layer if positions(layer) else () for layer in layers)
        return StateBlock(self.start, end, kept)

    def bytes_before(self, end: int) -> int:
        """Return what would be left of it after `cut`, in bytes."""
        return sum(
            array.nbytes // array.shape[-2] * max(0, array.shape[-2] - (self.end - end))
            for layer in self.layers
            for array in layer
            if array is not None
        )


@dataclass(frozen=True, slots=True)
class StateLayout:
    """What a model's state takes, measured on the model's own caches.

    Attributes:
        kind: `plain`; or the kinds of its other parts joined by `+`, such as `rotating:512`, `quantised:8`,
            `chunked:8192`, `hybrid` (attention and recurrent layers), `recurrent` (no attention at all),
            `hybrid+rotating:2048`.
        bytes_per_token: of full attention, over all layers.
        windows: sizes of the sliding windows in tokens, each with its bytes per token over all its layers.
        recurrent_bytes: of one snapshot of all recurrent layers, however long the prompt is.
    """

    kind: str
    bytes_per_token: int
    windows: tuple[tuple[int, int], ...] = ()
    recurrent_bytes: int = 0

    @property
    def trimmable(self) -> bool:
        """Whether the state can be cut back to any token."""
        return not self.windows and not self.recurrent_bytes

    @property
    def sizes(self) -> Sizes:
        """The same without the kind."""
        return Sizes(self.bytes_per_token, self.windows, self.recurrent_bytes)

    @property
    def bytes_per_snapshot(self) -> int:
        """Bytes of what cannot be cut, at one position beyond the first window."""
        return self.sizes.bytes_per_snapshot


#: The parts by the class names of mlx-lm's cache objects; subclasses may keep more than those.
_PARTS: dict[str, Any] = {
    "KVCache": PlainKV,
    "ConcatenateKVCache": PlainKV,
    "QuantizedKVCache": QuantisedKV,
    "RotatingKVCache": RotatingKV,
    "ChunkedKVCache": ChunkedKV,
    "ArraysCache": RecurrentState,
    "MambaCache": RecurrentState,
}


class ModelState:
    """The caches of one model during one prompt.

    Args:
        caches: mlx-lm's objects, as `make_prompt_cache` gives them and as the model is called with.

    Attributes:
        caches: the same objects.
        parts: those that keep something, in order, nested ones in the place of their list.
        attention: those of them that keep K and V.
        recurrent: the others.
    """

    def __init__(self, caches: list[Any]) -> None:
        self.caches = caches
        self.parts = tuple(_part(cache) for cache in leaves(caches))
        self.attention = tuple(part for part in self.parts if part.window != 0)
        self.recurrent = tuple(part for part in self.parts if part.window == 0)

    def arrays(self) -> list[mx.array]:
        """Return all arrays, for `mx.eval`."""
        return [array for part in self.parts for array in part.arrays()]

    def layout(self) -> StateLayout:
        """Measure what the state takes; some tokens have to have run."""
        sizes: dict[int | None, int] = defaultdict(int)
        for part in self.parts:
            arrays = part.arrays()
            one = sum(array.nbytes // (1 if part.window == 0 else array.shape[-2]) for array in arrays)
            sizes[part.window] += one
        windows = sorted((size, each) for size, each in sizes.items() if size)
        return StateLayout(self._kind(), sizes[None], tuple(windows), sizes[0])

    def missing(self, blocks: Sequence[StateBlock], length: int) -> str | None:
        """Say what keeps blocks from being put back exactly, cut to `length` tokens; None if nothing does.

        Args:
            blocks: a prompt's blocks from its first token on, without gaps.
            length: how many of their tokens are wanted.
        """
        at = 0
        for block in blocks:
            if block.start != at:
                return f"the block after position {at} starts at {block.start}"
            at = block.end
        if length > at:
            return f"the blocks hold {at} tokens, not {length}"
        if length and self.recurrent and not _snapshot(blocks, length):
            return f"there is no snapshot of the recurrent layers at position {length}"
        for number, part in enumerate(self.attention):
            if length and _pieces(number, part, blocks, length) is None:
                return f"the blocks do not hold what a {part.kind} cache needs before position {length}"
        return None

    def resumable(self, blocks: Sequence[StateBlock], limit: int) -> int:
        """Return the last position, at most `limit`, that has everything; 0 where none has.

        Args:
            blocks: a prompt's blocks from its first token on, without gaps.
            limit: the most tokens that are wanted.
        """
        ends = {block.end for block in blocks if block.end < limit}
        most = min(limit, blocks[-1].end if blocks else 0)
        found = (at for at in sorted(ends | {most}, reverse=True) if self.missing(blocks, at) is None)
        return next(found, 0)

    def restore(self, blocks: Sequence[StateBlock], length: int) -> None:
        """Put blocks into the empty caches, which then are as if `length` tokens had run.

        Args:
            blocks: a prompt's blocks from its first token on, without gaps.
            length: tokens to keep, at most what the blocks hold.

        Raises:
            ValueError: the blocks do not hold everything that the rest of the prompt needs.
        """
        import mlx.core as mx

        if reason := self.missing(blocks, length):
            raise ValueError(f"cannot continue after {length} tokens: {reason}")
        if not length:
            return
        for number, part in enumerate(self.attention):
            part.put(_pieces(number, part, blocks, length) or (), length)
        for part, snapshot in zip(self.recurrent, _snapshot(blocks, length), strict=True):
            part.put([snapshot], length)
        mx.eval(self.arrays())

    def _kind(self) -> str:
        kinds = dict.fromkeys(part.kind for part in self.parts)
        recurrent = "recurrent" in kinds and ("recurrent" if len(kinds) == 1 else "hybrid")
        others = sorted(kind for kind in kinds if kind not in ("plain", "recurrent"))
        return "+".join([recurrent, *others] if recurrent else others) or "plain"


class Recorder:
    """Copies spans out of a state while a prompt runs.

    Args:
        state: the state that the prompt runs on.
        reused: tokens that were put back.
        spans: what is wanted, by rising `end`; they may overlap.

    Attributes:
        stops: positions, ascending, at which the run has to halt and call `record`.
        seconds: wall time spent on copying.
    """

    def __init__(self, state: ModelState, reused: int, spans: Sequence[TokenRange]) -> None:
        self.seconds = 0.0
        self._state = state
        self._spans = spans
        self._ends = [span.end for span in spans]
        self._windows = [(number, part) for number, part in enumerate(state.attention) if part.window]
        positions = {span.end for span in spans if span.snapshot and span.end > reused}
        self.stops = tuple(sorted(positions)) if self._windows or state.recurrent else ()
        # What cannot be copied later: K and V of a window by the span's and the part's number, and snapshots.
        self._kept: dict[tuple[int, int], Arrays] = {}
        self._snapshots: dict[int, tuple[Arrays, ...]] = {}

    def record(self, position: int) -> None:
        """Copy what cannot be copied later; the state is at `position`, one of `stops`."""
        import mlx.core as mx

        started = time.perf_counter()
        new: list[Arrays] = []
        for number, part in self._windows:
            oldest = position - (part.window or 0)
            for at, span in self._before(position, oldest):
                # What an earlier stop copied of a span reaches back at least as far.
                if (at, number) not in self._kept:
                    self._kept[at, number] = part.trim(max(span.start, oldest), span.end)
                    new.append(self._kept[at, number])
        self._snapshots[position] = tuple(part.trim(0, position) for part in self._state.recurrent)
        mx.eval(new, self._snapshots[position])
        self.seconds += time.perf_counter() - started

    def blocks(self) -> tuple[StateBlock, ...]:
        """Return a block for each span; all of them have run."""
        import mlx.core as mx

        started = time.perf_counter()
        blocks = tuple(self._block(at, span) for at, span in enumerate(self._spans))
        mx.eval([block.layers for block in blocks])
        self.seconds += time.perf_counter() - started
        return blocks

    def _before(self, position: int, oldest: int) -> Iterator[tuple[int, TokenRange]]:
        """Yield number and span of those that end at a position or before, but behind `oldest`."""
        for at in range(bisect_right(self._ends, position) - 1, -1, -1):
            if self._ends[at] <= oldest:
                break
            yield at, self._spans[at]

    def _block(self, at: int, span: TokenRange) -> StateBlock:
        layers = tuple(
            self._kept.get((at, number), ()) if part.window else part.trim(span.start, span.end)
            for number, part in enumerate(self._state.attention)
        )
        recurrent = self._snapshots.get(span.end, ()) if span.snapshot else ()
        return StateBlock(span.start, span.end, layers, recurrent)


def leaves(caches: Iterable[Any]) -> Iterator[Any]:
    """Yield cache objects, those of a `CacheList` in its place."""
    for cache in caches:
        if type(cache).__name__ == "CacheList":
            yield from leaves(cache.caches)
        else:
            yield cache


def refusals(caches: Iterable[Any]) -> tuple[str, ...]:
    """Return why cache objects cannot be copied out and back in exactly, each reason once."""
    reasons: dict[str, None] = {}
    for cache in leaves(caches):
        name = type(cache).__name__
        if name not in _PARTS:
            reasons[f"{name} is none of mlx-lm's own kinds of state"] = None
        elif getattr(cache, "keep", 0):
            reasons[f"{name} keeps its first {cache.keep} tokens beside its window"] = None
        elif name == "ChunkedKVCache" and drops_too_much(cache):
            reasons[f"{name} of this mlx-lm loses tokens of the chunk (0.32 does not)"] = None
    return tuple(reasons)


def _part(cache: Any) -> Part:
    part: Part = _PARTS[type(cache).__name__](cache)
    return part


def _snapshot(blocks: Sequence[StateBlock], length: int) -> tuple[Arrays, ...]:
    return next((block.recurrent for block in blocks if block.end == length), ())


def _pieces(number: int, part: Part, blocks: Sequence[StateBlock], length: int) -> list[Arrays] | None:
    """Return K and V that a part needs to go on after `length` tokens, oldest first; None if some lack."""
    first = max(0, length - part.window) if part.window else 0
    pieces = []
    for block in blocks:
        if block.end <= first or block.start >= length:
            continue
        layer = block.layers[number]
        begin = block.end - positions(layer)
        low, high = max(first, block.start), min(length, block.end)
        if begin > low:
            return None
        pieces.append(sliced(layer, low - begin, high - begin))
    return pieces
