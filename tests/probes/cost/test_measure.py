import time

import pytest
from tplaudit.probes.cost.calibration import model_identity
from tplaudit.probes.cost.measure import NEW_TOKENS, calibrate, new_calibration, steps, tokens_to_run
from tplaudit.probes.engine.mlx_engine import load_engine
from tplaudit.probes.models.model import load_model

DEPTH = 512


@pytest.fixture(scope="module")
def model():
    loaded = load_model(None)
    return model_identity(loaded), load_engine(loaded)


def test_what_is_measured_is_what_was_planned(model):
    identity, engine = model
    start = new_calibration(engine, identity)
    all_steps = list(calibrate(engine, start, DEPTH, repeats=2))
    found = all_steps[-1].calibration
    planned = {(new, step.depth) for step in steps(DEPTH) for new in step.new_tokens} | {
        (step.way, step.depth - step.way) for step in steps(DEPTH) if step.way
    }
    assert {(point.new_tokens, point.depth) for point in found.points} == planned
    assert all(second > 0 for point in found.points for second in point.seconds)
    assert {len(point.seconds) for point in found.points if point.new_tokens in NEW_TOKENS[:1]} == {2}
    assert all_steps[-1].done == all_steps[-1].total == tokens_to_run(None, DEPTH, 2)
    assert tokens_to_run(found, DEPTH, 2) == 0
    assert found.cost.longest == DEPTH + max(steps(DEPTH)[-1].new_tokens)
    assert found.spread >= 0


def test_an_interrupted_calibration_goes_on(model):
    identity, engine = model
    run = calibrate(engine, new_calibration(engine, identity), DEPTH, repeats=1)
    half = [next(run) for _ in range(5)][-1].calibration
    left = tokens_to_run(half, DEPTH, 1)
    assert 0 < left < tokens_to_run(None, DEPTH, 1)
    rest = [progress.point for progress in calibrate(engine, half, DEPTH, repeats=1)]
    assert not {(point.new_tokens, point.depth) for point in rest} & {
        (point.new_tokens, point.depth) for point in half.points
    }
    deeper = tokens_to_run(half, 2 * DEPTH, 1)
    assert deeper > left


def test_missing_runs_are_added(model):
    """An interrupt within a point keeps its runs; more repeats measure what is missing, ways once."""
    identity, engine = model
    run = calibrate(engine, new_calibration(engine, identity), 256, repeats=3)
    half = [next(run) for _ in range(2)][-1].calibration
    assert [len(point.seconds) for point in half.points] == [2]
    *_, full = calibrate(engine, half, 256, repeats=3)
    assert half.points[0].seconds == full.calibration.point(48, 0).seconds[:2]
    lengths = {len(full.calibration.point(48, step.depth).seconds) for step in steps(256)}
    assert lengths == {3}
    assert tokens_to_run(full.calibration, 256, 3) == 0
    assert tokens_to_run(full.calibration, 256, 5) == 256 + 2 * 48 * len(steps(256))
    *_, more = calibrate(engine, full.calibration, 256, repeats=5)
    assert more.done == more.total
    assert {len(more.calibration.point(48, step.depth).seconds) for step in steps(256)} == {5}
    assert more.calibration.point(128, 128) == full.calibration.point(128, 128)


def test_what_was_reached_once_on_the_way_is_repeated_as_a_length(model):
    identity, engine = model
    *_, first = calibrate(engine, new_calibration(engine, identity), DEPTH, repeats=2)
    assert len(first.calibration.point(256, 256).seconds) == 1
    *_, deeper = calibrate(engine, first.calibration, 2 * DEPTH, repeats=2)
    assert len(deeper.calibration.point(256, 256).seconds) == 2


def test_again_leaves_each_point_until_all_its_runs_are_there(model):
    identity, engine = model
    *_, before = calibrate(engine, new_calibration(engine, identity), 256, repeats=2)
    old = before.calibration
    run = calibrate(engine, old, 256, repeats=2, again=True)
    first = next(run)
    assert (first.point.new_tokens, first.point.depth, len(first.point.seconds)) == (48, 0, 2)
    assert first.calibration.points[0].seconds == old.point(32, 0).seconds
    assert first.calibration.point(48, 0) == first.point
    assert len(first.calibration.points) == len(old.points)
    *_, last = run
    assert last.done == last.total == tokens_to_run(None, 256, 2)
    assert [len(point.seconds) for point in last.calibration.points] == [
        len(point.seconds) for point in old.points
    ]
    assert not {point.seconds for point in last.calibration.points} & {point.seconds for point in old.points}


def test_a_deadline_ends_it(model):
    identity, engine = model
    start = new_calibration(engine, identity)
    assert list(calibrate(engine, start, DEPTH, repeats=1, deadline=time.monotonic() - 1)) == []
