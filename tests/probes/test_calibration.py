"""Calibrations: measured with a real model, kept in a file, gone on with."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace

import pytest
from tplaudit.probes import calibration as kept
from tplaudit.probes.calibrating import NEW_TOKENS, calibrate, new_calibration, steps, tokens_to_run
from tplaudit.probes.calibration import (
    CalibratedModel,
    Point,
    calibration_file,
    config_digest,
    find_calibration,
    read_calibration,
    to_json,
    write_calibration,
)
from tplaudit.probes.errors import InputError
from tplaudit.probes.machine import this_machine
from tplaudit.probes.models import load_model

DEPTH = 512


@pytest.fixture(scope="module")
def model():
    loaded = load_model(None)
    return loaded.identity(), loaded.load_engine()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TPLAUDIT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def made(*points):
    return kept.Calibration(
        model=CalibratedModel("m", "llama", "0" * 64),
        machine=this_machine(),
        versions={"mlx": "1"},
        weights="float32",
        blas="openblas",
        measured="2026-11-30",
        points=points,
    )


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
    rest = [step.point for step in calibrate(engine, half, DEPTH, repeats=1)]
    assert not {(point.new_tokens, point.depth) for point in rest} & {
        (point.new_tokens, point.depth) for point in half.points
    }
    deeper = tokens_to_run(half, 2 * DEPTH, 1)
    assert deeper > left


def test_a_deadline_ends_it(model):
    identity, engine = model
    start = new_calibration(engine, identity)
    assert list(calibrate(engine, start, DEPTH, repeats=1, deadline=time.monotonic() - 1)) == []


def test_it_is_kept_and_found(folder):
    calibration = made(Point(48, 0, (0.5, 0.7, 0.9)), Point(100, 0, (2.0,)))
    assert find_calibration(calibration.model) is None
    write_calibration(calibration, calibration_file(calibration.model))
    assert find_calibration(calibration.model) == calibration
    assert find_calibration(replace(calibration.model, kv_bits=4)) is None
    assert find_calibration(replace(calibration.model, config="1" * 64)) is None
    assert [path.suffix for path in (folder / "calibrations").iterdir()] == [".json"]
    assert calibration.points[0].median == 0.7
    assert calibration.points[0].spread == pytest.approx(0.4 / 0.7)
    assert calibration.points[1].spread is None


def test_another_machine_has_a_file_of_its_own(folder):
    model = made().model
    here = this_machine()
    assert calibration_file(model, replace(here, processor="Apple M9")) != calibration_file(model, here)
    # More memory makes nothing faster.
    assert calibration_file(model, replace(here, memory_bytes=1)) == calibration_file(model, here)


def test_a_new_point_takes_the_place_of_one_of_its_size():
    calibration = made(Point(48, 0, (0.5,)), Point(48, 10, (0.6,)))
    again = calibration.with_point(Point(48, 0, (0.4,)))
    assert again.points == (Point(48, 0, (0.4,)), Point(48, 10, (0.6,)))
    assert calibration.points[0].seconds == (0.5,)


def test_json_goes_round_and_holds_the_fit(tmp_path):
    points = [
        Point(new, depth, (0.1 + new / 100 + depth / 1e4,))
        for new in (48, 256)
        for depth in range(0, 900, 100)
    ]
    calibration = made(*points)
    document = to_json(calibration)
    assert document["schema"] == "tplaudit.calibration/1"
    assert document["seconds"]["per_token"] == pytest.approx(0.01)
    file = tmp_path / "a" / "c.json"
    write_calibration(calibration, file)
    assert read_calibration(file) == calibration
    assert json.loads(file.read_text()) == document


def test_the_layout_of_a_config_changes_nothing():
    assert config_digest({"a": 1, "b": [2]}) == config_digest({"b": [2], "a": 1})
    assert config_digest({"a": 1}) != config_digest({"a": 2})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"schema": "tplaudit.replay/1"}',
        json.dumps(
            to_json(made(Point(1, 0, (0.1,)))) | {"points": [{"new_tokens": 1, "depth": 0, "seconds": []}]}
        ),
        json.dumps(
            to_json(made(Point(1, 0, (0.1,)))) | {"points": [{"new_tokens": 0, "depth": 0, "seconds": [1]}]}
        ),
        json.dumps(
            to_json(made(Point(1, 0, (0.1,)))) | {"points": [{"new_tokens": 1, "depth": 0, "seconds": [0]}]}
        ),
        json.dumps(
            to_json(made(Point(1, 0, (0.1,))))
            | {"points": [{"new_tokens": 1, "depth": 0, "seconds": [1e308]}]}
        ),
    ],
)
def test_what_is_no_calibration_is_told(tmp_path, text):
    file = tmp_path / "c.json"
    file.write_text(text)
    with pytest.raises(InputError, match=r"c\.json.*run tplaudit calibrate again"):
        read_calibration(file)


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_calibration(tmp_path / "none.json")


@pytest.mark.skipif(os.name != "posix", reason="needs a path that cannot be a folder")
def test_a_folder_that_cannot_be_written_is_told():
    with pytest.raises(InputError, match="TPLAUDIT_CACHE_DIR"):
        write_calibration(made(), kept.Path(os.devnull) / "a" / "c.json")
