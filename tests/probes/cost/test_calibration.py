"""Calibrations: measured with a real model, kept in a file, gone on with."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from tplaudit.probes.cost import calibration as kept
from tplaudit.probes.cost.calibration import (
    CalibratedModel,
    Point,
    calibration_file,
    config_digest,
    find_calibration,
    identified,
    keep_point,
    misfits,
    model_identity,
    read_calibration,
    same_conditions,
    to_json,
    write_calibration,
)
from tplaudit.probes.cost.machine import this_machine
from tplaudit.probes.engine.mlx_engine import load_engine
from tplaudit.probes.errors import InputError
from tplaudit.probes.models.model import find_model, load_model


@pytest.fixture(scope="module")
def model():
    loaded = load_model(None)
    return model_identity(loaded), load_engine(loaded)


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


def test_two_that_measure_at_once_keep_both(folder):
    """Each puts in what it has measured, beside what the other has meanwhile."""
    start = made()
    file = calibration_file(start.model)
    keep_point(start, Point(48, 0, (0.1,)), file)
    other = keep_point(start, Point(256, 0, (0.2,)), file)
    assert other.points == (Point(48, 0, (0.1,)), Point(256, 0, (0.2,)))
    assert keep_point(start, Point(48, 0, (0.3,)), file).point(48, 0) == Point(48, 0, (0.1, 0.3))
    again = keep_point(start, Point(48, 0, (0.4, 0.5)), file, again=True)
    assert again == find_calibration(start.model) != other
    assert again.points == (Point(48, 0, (0.4, 0.5)), Point(256, 0, (0.2,)))
    updated = keep_point(replace(start, versions={"mlx": "2"}), Point(48, 0, (0.6,)), file)
    assert updated.points == (Point(48, 0, (0.6,)),)
    file.write_text("{")
    assert keep_point(start, Point(48, 0, (0.1,)), file).points == (Point(48, 0, (0.1,)),)


def test_processes_that_write_at_once_lose_nothing(folder):
    script = (
        "import sys; from pathlib import Path\n"
        "from tplaudit.probes.cost.calibration import Point, keep_point, read_calibration\n"
        "start = read_calibration(Path(sys.argv[1]))\n"
        "for new in range(int(sys.argv[2]), 60, 2):\n"
        "    keep_point(start, Point(new, 0, (0.5,)), Path(sys.argv[1]))\n"
    )
    file = folder / "c.json"
    write_calibration(made(), file)
    runs = [subprocess.Popen([sys.executable, "-c", script, str(file), first]) for first in ("1", "2")]
    assert [run.wait(60) for run in runs] == [0, 0]
    assert [point.new_tokens for point in read_calibration(file).points] == list(range(1, 60))
    assert not list(folder.glob("*.part"))


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_nothing(folder, monkeypatch, failure):
    def fails(*_):
        raise failure

    file = folder / "c.json"
    write_calibration(made(), file)
    before = file.read_text()
    monkeypatch.setattr(kept.Path, "replace", fails)
    with pytest.raises(InputError if isinstance(failure, OSError) else KeyboardInterrupt):
        write_calibration(made(Point(48, 0, (0.1,))), file)
    assert [path.name for path in folder.iterdir()] == ["c.json"]
    assert file.read_text() == before


def test_other_conditions_are_told():
    calibration = replace(made(), versions=dict(kept.measured_versions()))
    assert same_conditions(
        calibration, replace(calibration, measured="2026-12-01", points=(Point(1, 0, (1,)),))
    )
    for other in ({"blas": "bundled"}, {"versions": {}}, {"weights": "4-bit"}):
        assert not same_conditions(calibration, replace(calibration, **other))
    assert misfits(calibration, calibration.model) == misfits(calibration, None, "openblas") == ()
    (note,) = misfits(calibration, None, "bundled")
    assert note == "the calibration was measured with openblas BLAS, not with bundled as here"


def test_the_group_size_belongs_to_quantised_state_only():
    directory = find_model(None).directory
    plain = identified(directory)
    assert (
        plain
        == identified(directory, kv_group_size=32)
        == replace(model_identity(load_model(None)), source=plain.source)
    )
    by_32, by_64 = (identified(directory, kv_bits=8, kv_group_size=size) for size in (32, 64))
    assert by_32 == replace(model_identity(load_model(None), 8, 32), source=by_32.source)
    assert len({calibration_file(each) for each in (plain, by_32, by_64)}) == 3
    assert misfits(replace(made(), model=by_32, versions=kept.measured_versions()), by_64)


@pytest.mark.parametrize("named", ["../../x/y", "x" * 300, "a\0b\n", "ä/" * 100, "..", ""])
def test_no_architecture_leads_out_of_the_folder(folder, named):
    model = replace(made().model, architecture=named)
    write_calibration(made(), calibration_file(model))
    (file,) = (folder / "calibrations").glob("*.json")
    assert file == calibration_file(model)
    assert len(file.name) <= 70


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


def on(**machine):
    document = to_json(made(Point(1, 0, (0.1,))))
    return json.dumps(document | {"machine": document["machine"] | machine})


@pytest.mark.parametrize(
    "text",
    [
        on(memory_bytes=10**400),
        on(memory_bytes=-1),
        on(cores=0),
        on(cores=10**400),
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


def test_a_folder_that_cannot_be_written_is_told():
    with pytest.raises(InputError, match="TPLAUDIT_CACHE_DIR"):
        write_calibration(made(), kept.Path(os.devnull) / "a" / "c.json")
