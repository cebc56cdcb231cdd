"""Measuring prefills for a calibration: a few lengths at several depths of one random prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING

from .caches.base import Span
from .calibration import CalibratedModel, Calibration, Point, measured_versions
from .machine import this_machine
from .mlx_engine import OutOfTime

if TYPE_CHECKING:
    from .caches.states import StateBlock
    from .mlx_engine import MLXEngine

#: Numbers of new tokens that are measured at each depth: a turn that only appends has some dozens to a few
#: thousand, and one that parts early has what the way from one depth to the next has.
NEW_TOKENS = (48, 256, 1024)
#: Depths, as parts of the longest one.
_PARTS = (0.0, 1 / 8, 1 / 4, 1 / 2, 1.0)


@dataclass(frozen=True, slots=True)
class Step:
    """One depth of a calibration.

    Attributes:
        depth: tokens in the cache.
        way: tokens from the depth before to this one; measured once, on the way.
        new_tokens: lengths to measure there.
    """

    depth: int
    way: int
    new_tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """What a calibration tells while it runs.

    Attributes:
        point: what was just measured.
        calibration: with that point.
        done: tokens prefilled so far.
        total: tokens to prefill in all.
    """

    point: Point
    calibration: Calibration
    done: int
    total: int


def steps(deepest: int) -> tuple[Step, ...]:
    """Return what to measure.

    Args:
        deepest: the longest prefix to stand in the cache, in tokens.
    """
    depths = sorted({round(deepest * part) for part in _PARTS})
    lengths = tuple(each for each in NEW_TOKENS if each <= max(deepest // 4, NEW_TOKENS[0]))
    before = [0, *depths]
    return tuple(
        Step(depth, depth - earlier, lengths) for depth, earlier in zip(depths, before, strict=False)
    )


def new_calibration(engine: MLXEngine, model: CalibratedModel) -> Calibration:
    """Return a calibration of a model on this machine, without measurements."""
    return Calibration(
        model=model,
        machine=this_machine(),
        versions=measured_versions(),
        weights=engine.precision,
        blas=engine.blas,
        measured=f"{date.today()}",
    )


def tokens_to_run(start: Calibration | None, deepest: int, repeats: int) -> int:
    """Return how many tokens a calibration still has to prefill.

    Args:
        start: what was measured before, if anything.
        deepest: as of `calibrate`.
        repeats: as of `calibrate`.
    """
    return _tokens(_missing(start, steps(deepest)), repeats)


def calibrate(
    engine: MLXEngine, start: Calibration, deepest: int, *, repeats: int, deadline: float | None = None
) -> Iterator[Progress]:
    """Measure what a calibration does not have yet, and yield it after each measurement.

    Args:
        engine: the model.
        start: what was measured before; its points are not measured again.
        deepest: the longest prefix to stand in the cache, in tokens.
        repeats: runs of each point, but of the way to the next depth one only.
        deadline: time of `time.monotonic` after which nothing more is measured; None for no limit.
    """
    import numpy as np

    plan = _missing(start, steps(deepest))
    total = _tokens(plan, repeats)
    length = max((step.depth + max(step.new_tokens, default=0) for step in plan), default=0)
    ids = np.random.default_rng(0).integers(0, engine.vocabulary, length, dtype=np.int32)
    blocks: list[StateBlock] = []
    done = 0
    calibration = replace(start, measured=f"{date.today()}")
    for step in plan:
        before = step.depth - step.way
        try:
            if step.way:
                span = Span(before, step.depth, snapshot=True)
                ran = engine.prefill(ids[: step.depth], blocks, before, spans=[span], deadline=deadline)
                blocks.extend(ran.payloads)
                done += step.way
                if calibration.point(step.way, before) is None:
                    point = Point(step.way, before, (ran.seconds,))
                    calibration = calibration.with_point(point)
                    yield Progress(point, calibration, done, total)
            for new in step.new_tokens:
                prompt = ids[: step.depth + new]
                seconds = []
                for _ in range(repeats):
                    ran = engine.prefill(prompt, blocks, step.depth, spans=[], deadline=deadline)
                    seconds.append(ran.seconds)
                done += repeats * new
                point = Point(new, step.depth, tuple(seconds))
                calibration = calibration.with_point(point)
                yield Progress(point, calibration, done, total)
        except OutOfTime:
            return


def _tokens(plan: Sequence[Step], repeats: int) -> int:
    return sum(step.way + repeats * sum(step.new_tokens) for step in plan)


def _missing(calibration: Calibration | None, plan: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps without what was measured before, up to the last that still has something to do."""
    if calibration is None:
        return tuple(plan)
    left = []
    for step in plan:
        lengths = tuple(new for new in step.new_tokens if calibration.point(new, step.depth) is None)
        left.append(Step(step.depth, step.way, lengths))
    wanted = [
        at
        for at, step in enumerate(left)
        if step.new_tokens or (step.way and calibration.point(step.way, step.depth - step.way) is None)
    ]
    return tuple(left[: max(wanted) + 1]) if wanted else ()
