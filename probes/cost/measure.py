"""Measuring prefills for a calibration: a few lengths at several depths of one random prompt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING

from ..engine.mlx_engine import OutOfTime
from ..tokenization.token_range import TokenRange
from .calibration import CalibratedModel, Calibration, Point, measured_versions
from .machine import this_machine

if TYPE_CHECKING:
    from ..engine.mlx_engine import MLXEngine
    from ..engine.states import StateBlock

#: Numbers of new tokens that are measured at each depth: a turn that only appends has some dozens to a few
#: thousand, and one that parts early has what the way from one depth to the next has.
NEW_TOKENS = (48, 256, 1024)
#: Depths, as parts of the longest one.
_PARTS = (0.0, 1 / 8, 1 / 4, 1 / 2, 1.0)


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """One depth of a calibration.

    Attributes:
        depth: tokens in the cache.
        way: tokens from the depth before to this one; measured once, on the way.
        new_tokens: lengths to measure there, each as often as it is to run.
    """

    depth: int
    way: int
    new_tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """What a calibration tells while it runs.

    Attributes:
        point: what was just measured, of a point that has earlier runs those of now only.
        calibration: with that point.
        done: tokens prefilled so far.
        total: tokens to prefill in all.
    """

    point: Point
    calibration: Calibration
    done: int
    total: int


def steps(deepest: int, repeats: int = 1) -> tuple[MeasuredStep, ...]:
    """Return what to measure."""
    depths = sorted({round(deepest * part) for part in _PARTS})
    lengths = [each for each in NEW_TOKENS if each <= max(deepest // 4, NEW_TOKENS[0])]
    runs = tuple(each for each in lengths for _ in range(repeats))
    before = [0, *depths]
    return tuple(
        MeasuredStep(depth, depth - earlier, runs) for depth, earlier in zip(depths, before, strict=False)
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
    """Return how many tokens a calibration still has to prefill."""
    return _tokens(_missing(start, steps(deepest, repeats)))


def calibrate(
    engine: MLXEngine,
    start: Calibration,
    deepest: int,
    *,
    repeats: int,
    again: bool = False,
    deadline: float | None = None,
) -> Iterator[Progress]:
    """Measure what a calibration does not have yet, and yield it after each run.

    Args:
        engine: the model.
        start: what was measured before.
        deepest: the longest prefix to stand in the cache, in tokens.
        repeats: runs that each point is to have, but of the way to the next depth one only.
        again: measure everything. Each point of `start` stands until all its runs are there again.
        deadline: time of `time.monotonic` after which nothing more is measured; None for no limit.
    """
    import numpy as np

    calibration = replace(start, measured=f"{date.today()}")
    ready = replace(start, points=()) if again else start
    plan = _missing(ready, steps(deepest, repeats))
    total = _tokens(plan)
    length = max((step.depth + max(step.new_tokens, default=0) for step in plan), default=0)
    ids = np.random.default_rng(0).integers(0, engine.vocabulary, length, dtype=np.int32)
    blocks: list[StateBlock] = []
    done = 0
    for step in plan:
        before = step.depth - step.way
        try:
            if step.way:
                span = TokenRange(before, step.depth, snapshot=True)
                ran = engine.prefill(ids[: step.depth], blocks, before, spans=[span], deadline=deadline)
                blocks.extend(ran.payloads)
                done += step.way
                if ready.point(step.way, before) is None:
                    point = Point(step.way, before, (ran.seconds,))
                    ready, calibration = ready.with_point(point), calibration.with_point(point)
                    yield Progress(point, calibration, done, total)
            for new, runs in Counter(step.new_tokens).items():
                prompt = ids[: step.depth + new]
                seconds: tuple[float, ...] = ()
                for _ in range(runs):
                    ran = engine.prefill(prompt, blocks, step.depth, spans=[], deadline=deadline)
                    seconds = (*seconds, ran.seconds)
                    done += new
                    if again and len(seconds) < runs:
                        continue
                    point = Point(new, step.depth, seconds if again else seconds[-1:])
                    ready = ready.with_runs(point)
                    calibration = calibration.with_point(point) if again else calibration.with_runs(point)
                    yield Progress(point, calibration, done, total)
        except OutOfTime:
            return


def _tokens(plan: Sequence[MeasuredStep]) -> int:
    return sum(step.way + sum(step.new_tokens) for step in plan)


def _missing(calibration: Calibration | None, plan: Sequence[MeasuredStep]) -> tuple[MeasuredStep, ...]:
    """Return the steps without the runs that were made before, up to the last that has something to do."""
    if calibration is None:
        return tuple(plan)
    left = []
    wanted = 0
    for step in plan:
        here = (point for point in calibration.points if point.depth == step.depth)
        made = {point.new_tokens: len(point.seconds) for point in here}
        lengths = Counter(step.new_tokens) - Counter(made)
        left.append(replace(step, new_tokens=tuple(lengths.elements())))
        if lengths or (step.way and calibration.point(step.way, step.depth - step.way) is None):
            wanted = len(left)
    return tuple(left[:wanted])
