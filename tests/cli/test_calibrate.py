"""`tplaudit calibrate`, and the replays that predict from it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_processes import run_command
from commands import refused
from tplaudit.fixtures import DEFAULT_MODEL, template, transcript
from tplaudit.probes.transcripts.reader import open_transcript

CHAT = transcript("chat")
SMALL = ("calibrate", "--depth", "512", "--repeats", "1")
TOKENS = ("replay", CHAT, "--engine", "tokens", "-p", "note")


@pytest.fixture
def folder(tmp_path):
    return {"TPLAUDIT_CACHE_DIR": str(tmp_path / "cache")}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A small calibration, measured once: the folder of measurements `cache`, and the document `c.json`."""
    made = tmp_path_factory.mktemp("measured")
    environment = {"TPLAUDIT_CACHE_DIR": str(made / "cache")}
    done = run_command(*SMALL, "--json", "--output", made / "c.json", environment=environment)
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture
def calibrated(measured, folder, tmp_path):
    """Variables of a folder with that calibration, which is `tmp_path / "cache"`."""
    shutil.copytree(measured / "cache", tmp_path / "cache")
    return folder


def test_it_measures_once_and_replays_predict_from_it(tplaudit, folder, tmp_path):
    done = tplaudit(*SMALL, **folder)
    assert done.returncode == 0, done.stderr
    assert "tokens are going to be prefilled on" in done.stderr
    assert "A point that was left out of the fit is predicted with an error of" in done.stdout
    again = tplaudit(*SMALL, "--json", "--output", tmp_path / "c.json", **folder)
    assert again.returncode == 0
    assert "all of this was measured on" in again.stderr
    document = json.loads((tmp_path / "c.json").read_text())
    assert document["schema"] == "tplaudit.calibration/1"

    report = json.loads(tplaudit(*TOKENS, "--json", **folder).stdout)
    assert report["prediction"]["kind"] == "calibration"
    fitted = document["seconds"]
    for turn in report["policies"][0]["turns"]:
        new, depth = turn["reprefill"], turn["reused"]
        expected = (
            fitted["per_call"]
            + fitted["per_token"] * new
            + fitted["per_depth"] * depth
            + fitted["per_pair"] * new * (depth + new / 2)
        )
        assert turn["cost"]["kind"] == "predicted"
        assert turn["cost"]["seconds"] == pytest.approx(expected)
        inside = new + depth <= fitted["longest"]
        assert turn["cost"]["error"] == (pytest.approx(expected * fitted["error"]) if inside else None)
    text = " ".join(tplaudit(*TOKENS, **folder).stdout.split())
    assert "seconds are predicted from a calibration of bundled on" in text
    # Elsewhere, by the file; and for a bare template, which has no model of its own.
    given = ("--calibration", tmp_path / "c.json")
    for model in ((), ("--model", template("strict"))):
        other = json.loads(tplaudit(*TOKENS, *model, *given, "--json").stdout)
        assert other["prediction"]["source"] == report["prediction"]["source"]
    jobs = tplaudit(*TOKENS, "-p", "as-is", "--jobs", "2", *given, "--json")
    alone = tplaudit(*TOKENS, "-p", "as-is", *given, "--json")
    assert jobs.stdout == alone.stdout


def test_an_interrupt_keeps_what_was_measured(tplaudit, folder):
    command = [sys.executable, "-m", "tplaudit.cli.app", "calibrate", "--depth", "65536"]
    run = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **folder}
    )
    calibrations = Path(folder["TPLAUDIT_CACHE_DIR"]) / "calibrations"
    until = time.monotonic() + 60
    while not list(calibrations.glob("*.json")):
        assert time.monotonic() < until
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 130, err
    assert "Measured: bundled" in out
    assert " kept; " in err
    first = len(out.splitlines())
    done = tplaudit("calibrate", "--depth", "256", "--repeats", "1", **folder)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) >= first


def test_time_that_is_too_short(tplaudit, folder):
    done = tplaudit("calibrate", "--depth", "300000", "--max-minutes", "0.01", "--json", **folder)
    assert done.returncode == 0, done.stderr
    assert "tokens are left; repeat the command to continue" in done.stderr
    assert 0 < len(json.loads(done.stdout)["points"]) < 20


def test_a_template_is_no_model(tplaudit, folder):
    said = refused(tplaudit("calibrate", template("strict"), **folder))
    assert said.startswith(f"tplaudit: {template('strict')}: this is a template or another file, and no")


def test_what_is_no_model_is_told_with_fitting_advice(tplaudit, folder, tmp_path):
    """No template and no tokenizer is asked for, and no option that calibrate does not have is named."""
    (tmp_path / "none").mkdir()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.json").write_bytes((DEFAULT_MODEL / "config.json").read_bytes())
    for name, what in (
        ("missing", "there is no such model directory"),
        ("none", "the directory has no config.json"),
        ("config", "there are no weights (model*.safetensors); predict from replay's --prefill-rate"),
    ):
        said = refused(tplaudit("calibrate", tmp_path / name, **folder))
        assert said.startswith(f"tplaudit: {tmp_path / name}: {what}")
        assert "--engine" not in said


@pytest.mark.parametrize(
    "given", [("--depth", "10000000000"), ("--depth", "9" * 23), ("--repeats", "9" * 10)]
)
def test_sizes_beyond_all_models_are_refused(tplaudit, folder, given):
    said = refused(tplaudit("calibrate", *given, **folder))
    assert given[0] in said
    assert "internal error" not in said


def test_a_folder_that_cannot_be_written_is_told_before_the_work(tplaudit):
    said = refused(tplaudit(*SMALL, TPLAUDIT_CACHE_DIR=os.devnull))
    assert "set TPLAUDIT_CACHE_DIR to a folder that can be written" in said


def test_the_output_is_not_written_over_the_measurements(tplaudit, calibrated, tmp_path):
    calibrations = tmp_path / "cache" / "calibrations"
    (file,) = calibrations.glob("*.json")
    before = file.read_text()
    assert tplaudit(*SMALL, "--again", "--output", file, **calibrated).returncode == 2
    assert file.read_text() == before
    file.unlink()
    said = refused(
        tplaudit(*SMALL, "--output", calibrations / ".." / "calibrations" / file.name, **calibrated)
    )
    assert "the measurements are kept there" in said
    assert not file.exists()


def test_what_was_measured_otherwise_is_replaced_and_the_rest_stands(tplaudit, calibrated, tmp_path):
    (file,) = (tmp_path / "cache" / "calibrations").glob("*.json")
    document = json.loads(file.read_text())
    stopped = tplaudit("calibrate", "--again", "--depth", "300000", "--max-minutes", "0.01", **calibrated)
    assert "tokens are left; their earlier measurements are kept" in stopped.stderr
    assert len(json.loads(file.read_text())["points"]) >= len(document["points"])
    for other in ({"versions": {"mlx": "0.1"}}, {"blas": "abacus"}):
        file.write_text(json.dumps(document | other))
        done = tplaudit(*SMALL, "--repeats", "2", "--json", **calibrated)
        assert done.returncode == 0, done.stderr
        assert "is not what runs now, so it is replaced" in done.stderr
        measured = json.loads(done.stdout)
        assert (measured["versions"], measured["blas"]) == (document["versions"], document["blas"])
        runs = {len(point["seconds"]) for point in measured["points"] if point["new_tokens"] == 48}
        assert runs == {2}


def test_a_broken_calibration_is_told_and_not_used(tplaudit, calibrated, tmp_path):
    (file,) = (tmp_path / "cache" / "calibrations").glob("*.json")
    file.write_text("{")
    done = tplaudit(*TOKENS, "--json", **calibrated)
    assert done.returncode == 0
    assert "this is not a calibration" in done.stderr
    assert json.loads(done.stdout)["prediction"] is None
    assert tplaudit(*TOKENS, "--calibration", file).returncode == 2
    assert tplaudit(*SMALL, **calibrated).returncode == 0
    assert json.loads(file.read_text())["points"]


def test_what_does_not_fit_is_told(tplaudit, measured, tmp_path):
    document = json.loads((measured / "c.json").read_text())
    document["model"]["config"], document["versions"]["mlx"] = "0" * 64, "0.1"
    (tmp_path / "c.json").write_text(json.dumps(document))
    done = tplaudit(*TOKENS, "--calibration", tmp_path / "c.json")
    shown = " ".join(done.stdout.split())
    assert "the calibration is of another model, bundled" in shown
    assert "measured with mlx 0.1" in shown
    assert "the error is not known" in shown
    assert "--calibration: seconds are predicted from one thing" in refused(
        tplaudit(*TOKENS, "--calibration", tmp_path / "c.json", "--prefill-rate", "10")
    )


def test_what_needs_the_engine_says_so(tplaudit):
    assert "--max-minutes: no model runs" in refused(tplaudit(*TOKENS, "--max-minutes", "1"))
    assert "--cache-bytes: the size of quantised keys and values is not known" in refused(
        tplaudit(*TOKENS, "--kv-bits", "8", "--cache-bytes", "1MB")
    )


def test_quantised_state_has_a_calibration_of_its_own(tplaudit, folder):
    bits = ("--kv-bits", "8", "--kv-group-size", "32")
    assert tplaudit(*SMALL, *bits, **folder).returncode == 0
    predicted = [json.loads(tplaudit(*TOKENS, *one, "--json", **folder).stdout) for one in ((), bits)]
    assert predicted[0]["prediction"] is None
    assert predicted[1]["prediction"]["kind"] == "calibration"


def test_little_time_for_a_replay(tplaudit, tmp_path):
    """What the model does not reach is counted and predicted; how much was to do is said before."""
    requests = open_transcript(transcript("claude-code"))
    bodies = [
        {"messages": [dict(each.data) for each in one.messages], "tools": one.tools} for one in requests
    ]
    # The clock starts with the first turn, which is over at once; all others together take far longer.
    bodies.insert(0, {"messages": [{"role": "user", "content": "Hello."}]})
    session = tmp_path / "session.jsonl"
    session.write_text("".join(json.dumps(body) + "\n" for body in bodies))
    command = ("replay", session, "-p", "omlx", "-p", "note", "--no-causes")
    done = tplaudit(*command, "--max-minutes", "0.05", "--json", timeout=200)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    kinds = [[turn["cost"]["kind"] for turn in policy["turns"]] for policy in report["policies"]]
    assert [(each[0], each[-1]) for each in kinds] == [("measured", "predicted")] * 2
    tokens = report["policies"][0]["totals"]["reprefill"]
    assert tokens > 114_000
    assert f"34 turns are going to prefill {tokens:,} tokens under omlx, " in done.stderr
    assert report["complete"]
    assert report["prediction"]["kind"] == "turns"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--prefill-rate", "inf"), "--prefill-rate: inf is not a finite number"),
        (("--prefill-rate", "1e400"), "--prefill-rate: inf is not a finite number"),
        (("--max-minutes", "nan"), "--max-minutes"),
        (("--kv-group-size", "33"), "--kv-group-size: mlx cannot quantise groups of 33"),
    ],
)
def test_numbers_that_are_none(tplaudit, option, said):
    assert said in refused(tplaudit("replay", CHAT, *option))


def test_what_is_read_is_not_overwritten(tplaudit, measured, tmp_path):
    file = Path(shutil.copy(measured / "c.json", tmp_path))
    before = file.read_text()
    done = tplaudit(*TOKENS, "--calibration", file, "--output", file)
    assert (done.returncode, file.read_text()) == (2, before)
    model = tmp_path / "model"
    shutil.copytree(DEFAULT_MODEL, model)
    said = refused(tplaudit(*TOKENS, "--model", model, "--output", model / "config.json"))
    assert "it would overwrite what is read" in said
    assert (model / "config.json").read_text() == (DEFAULT_MODEL / "config.json").read_text()


def test_quantised_state(tplaudit):
    command = ("replay", CHAT, "-p", "note", "--verify", "--json", "--block-size", "64")
    whole, quantised = (
        json.loads(tplaudit(*command, *bits).stdout)
        for bits in ((), ("--kv-bits", "8", "--kv-group-size", "32"))
    )
    assert whole["verify"]["passed"]
    assert quantised["verify"]["passed"]
    assert quantised["cache"]["layers"] == "quantised:8"
    assert quantised["cache"]["bytes_per_token"] < whole["cache"]["bytes_per_token"] / 2
    assert "group size 64" in refused(tplaudit(*command, "--kv-bits", "8"))
    counts = [[turn["reprefill"] for turn in one["policies"][0]["turns"]] for one in (whole, quantised)]
    assert counts[0] == counts[1]


def test_an_hour_of_the_session(tplaudit, tmp_path):
    """Three requests within half an hour, of which the last changes the system prompt."""
    history = [{"role": role, "content": "a b " * 40} for role in ("user", "assistant", "user")]
    log = "Keep a log of everything that happens, and say when. "
    lines = [
        {"timestamp": stamp, "messages": [{"role": "system", "content": f"{log}It is {hour}."}, *history]}
        for stamp, hour in (("2026-11-30T10:00:00Z", 10), (1764498600000, 10), (1764498600, 11))
    ]
    lines[1]["timestamp"] = "2026-11-30T10:30:00+00:00"
    lines[2]["timestamp"] = 1796034600  # 2026-11-30T10:30:00Z
    session = tmp_path / "session.jsonl"
    session.write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = ("replay", session, "--engine", "tokens", "-p", "as-is", "--prefill-rate", "10")
    report = json.loads(tplaudit(*command, "--block-size", "16", "--json").stdout)
    assert report["hours"] == 0.5
    wasted = report["policies"][0]["totals"]["wasted"]
    assert wasted["seconds"] > 0
    assert wasted["per_hour"]["seconds"] == pytest.approx(2 * wasted["seconds"])
    text = " ".join(tplaudit(*command, "--block-size", "16").stdout.split())
    assert "By its timestamps the session took 30 min: " in text
