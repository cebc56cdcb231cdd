"""What runs or predicts a replay's prefills: the engine within its time, then the model of time."""

import time
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace

import pytest
from tplaudit.fixtures import template, transcript
from tplaudit.probes.conversation import Transcript
from tplaudit.probes.cost.calibration import CalibratedModel, Calibration, Point
from tplaudit.probes.cost.cost_model import ENOUGH, CostModel, Measured
from tplaudit.probes.cost.machine import Machine
from tplaudit.probes.cost.prefill_timer import PrefillTimer
from tplaudit.probes.engine.mlx_engine import load_engine
from tplaudit.probes.models.model import load_model
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.replay.totals import totals
from tplaudit.probes.transcripts.reader import open_transcript

TURNS = 7
LAW = CostModel(0.01, 1e-4, 0, 1e-7)
CALIBRATION = Calibration(
    model=CalibratedModel("big", "llama", "0" * 64),
    machine=Machine("Darwin arm64", "Apple M9", 8, None),
    versions={},
    weights="4 bits",
    blas="metal",
    measured="2026-11-30",
    points=tuple(
        Point(new, depth, (LAW.seconds(new, depth),)) for new in (48, 256, 1000) for depth in (0, 100, 400)
    ),
)


@pytest.fixture(scope="module")
def engine():
    return load_engine(load_model(None))


def replayed(prefilling, engine=None, policies=("omlx", "note"), **options):
    session = open_transcript(transcript("claude-code"))
    run = Replay(
        Transcript("session", session.dialect, lambda: islice(session, TURNS)),
        load_model(None, template=str(template("strict"))),
        [parse_policy(name) for name in policies],
        block_size=16,
        engine=engine,
        prefilling=prefilling,
        causes=False,
        **options,
    )
    turns = list(run.turns())
    return run.report(), turns


class Clock:
    """A clock that goes on by one second whenever it is read."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1
        return self.now


def test_a_calibration_predicts_every_turn_with_its_error():
    report, _ = replayed(PrefillTimer(calibration=CALIBRATION))
    for policy in report.policies:
        for turn in policy.turns:
            assert turn.cost.kind == "predicted"
            assert turn.cost.seconds == pytest.approx(LAW.seconds(turn.reprefill, turn.reused))
            inside = turn.prompt_tokens <= CALIBRATION.cost.longest
            assert turn.cost.error == (pytest.approx(0, abs=1e-6) if inside else None)
        assert policy.totals.seconds == pytest.approx(sum(turn.cost.seconds for turn in policy.turns))
        assert policy.totals.measured is None
    assert report.prediction.kind == "calibration"
    assert report.prediction.source == (
        "a calibration of big on Apple M9 (Darwin arm64, 8 cores) of 2026-11-30"
    )
    assert report.prediction.measured.longest == 1400


def test_waste_is_what_an_append_only_turn_would_not_have_taken():
    report, _ = replayed(PrefillTimer(calibration=CALIBRATION))
    omlx = report.policies[0]
    assert omlx.totals.avoidable > 0
    expected = sum(
        LAW.seconds(turn.reprefill, turn.reused)
        - LAW.seconds(turn.unavoidable, turn.prompt_tokens - turn.unavoidable)
        for turn in omlx.turns
        if turn.avoidable
    )
    assert omlx.totals.wasted.seconds == pytest.approx(expected)
    assert 0 < omlx.totals.wasted.seconds < omlx.totals.seconds
    assert omlx.totals.wasted.per_hour is None
    hourly = totals(omlx.turns, LAW, hours=0.5).wasted
    assert hourly.per_hour.seconds == pytest.approx(2 * hourly.seconds)


def test_what_ran_corrects_the_calibration(engine, monkeypatch):
    """Prefills that take three times as long as a calibration says: so does the rest."""
    clock = SimpleNamespace(monotonic=Clock(), perf_counter=time.perf_counter)
    monkeypatch.setattr("tplaudit.probes.engine.mlx_engine.time", clock)
    monkeypatch.setattr("tplaudit.probes.cost.prefill_timer.time", clock)
    prefilling = PrefillTimer(engine, calibration=CALIBRATION, max_seconds=25)
    prefill = engine.prefill

    def slow(ids, restored, reused, **options):
        return replace(
            prefill(ids, restored, reused, **options), seconds=3 * LAW.seconds(len(ids) - reused, reused)
        )

    monkeypatch.setattr(engine, "prefill", slow)
    report, _ = replayed(prefilling, engine)
    guessed = [turn for policy in report.policies for turn in policy.turns if turn.cost.kind == "predicted"]
    assert guessed
    for turn in guessed:
        assert turn.cost.seconds == pytest.approx(3 * LAW.seconds(turn.reprefill, turn.reused))
    assert len(prefilling.measured) >= ENOUGH
    quality = report.prediction.measured
    assert (quality.correction, quality.prefills) == (pytest.approx(3), len(prefilling.measured))
    assert quality.error == pytest.approx(0, abs=1e-6)


def test_the_error_beyond_what_was_measured_is_not_known():
    cost = CALIBRATION.cost
    prefilling = PrefillTimer(calibration=CALIBRATION)
    inside, beyond = prefilling.predicted(400, 1000), prefilling.predicted(401, 1000)
    assert cost.longest == 1400
    assert (inside.error is None, beyond.error is None) == (False, True)
    assert beyond.seconds == pytest.approx(LAW.seconds(401, 1000))


def test_a_calibration_by_which_nothing_takes_time_is_not_corrected():
    calibration = replace(CALIBRATION)
    vars(calibration)["cost"] = CostModel(0, 0, 1, 0)  # depth alone, and all that ran began from nothing
    prefilling = PrefillTimer(calibration=calibration)
    prefilling.measured += [Measured(100 + at, 0, 1.0) for at in range(ENOUGH)]
    assert prefilling.prediction().measured.correction is None
    assert prefilling.predicted(100, 5).seconds == 5


def test_another_models_calibration_has_no_error():
    mine, other = CALIBRATION.model, CalibratedModel("small", "llama", "1" * 64)
    for model, known in ((mine, True), (other, False), (None, True)):
        prefilling = PrefillTimer(calibration=CALIBRATION, model=model)
        assert (prefilling.predicted(100, 100).error is not None) is known
        assert any("of another model, big" in note for note in prefilling.notes) is not known


def test_a_rate_goes_before_a_calibration():
    report, _ = replayed(PrefillTimer(rate=50, calibration=CALIBRATION))
    assert (report.prefill_rate, report.prediction.kind) == (50, "rate")
    turn = report.policies[0].turns[0]
    assert (turn.cost.seconds, turn.cost.error) == (turn.reprefill / 50, None)


def test_with_nothing_to_predict_from_there_are_no_seconds():
    report, _ = replayed(PrefillTimer())
    assert all(turn.cost is None for policy in report.policies for turn in policy.turns)
    assert report.prediction is None
    assert report.policies[0].totals.seconds is None
    assert report.policies[0].totals.wasted is None


def test_when_time_is_over_the_rest_is_counted_and_predicted(engine, monkeypatch):
    """The clock goes on at every chunk, so the engine stops in the midst of the replay."""
    whole, _ = replayed(None, engine)
    clock = SimpleNamespace(monotonic=Clock(), perf_counter=time.perf_counter)
    monkeypatch.setattr("tplaudit.probes.engine.mlx_engine.time", clock)
    monkeypatch.setattr("tplaudit.probes.cost.prefill_timer.time", clock)
    prefilling = PrefillTimer(engine, max_seconds=25)
    cut, _ = replayed(prefilling, engine)
    kinds = [turn.cost.kind for turns in zip(*(p.turns for p in cut.policies), strict=True) for turn in turns]
    measured = kinds.index("predicted")
    assert 6 <= measured < len(kinds)
    assert set(kinds[measured:]) == {"predicted"}
    assert len(prefilling.measured) == measured
    for mine, theirs in zip(cut.policies, whole.policies, strict=True):
        counts = [(turn.reused, turn.reprefill, turn.avoidable) for turn in mine.turns]
        assert counts == [(turn.reused, turn.reprefill, turn.avoidable) for turn in theirs.turns]
        assert mine.totals.seconds > 0
        assert mine.totals.measured.turns == sum(turn.cost.kind == "measured" for turn in mine.turns)
    assert cut.prediction.kind == "turns"
    assert cut.complete
    assert any("the model stopped after" in note for note in cut.notes)
    assert whole.prediction.kind == "turns"  # what was wasted is predicted all the same
    assert not any("the model stopped" in note for note in whole.notes)


def test_without_a_single_measured_turn_nothing_is_made_up(engine):
    report, _ = replayed(PrefillTimer(engine, max_seconds=-1), engine)
    assert all(turn.cost is None for policy in report.policies for turn in policy.turns)
    assert report.prediction is None


def test_speed_and_memory_are_measured(engine):
    report, _ = replayed(None, engine)
    for policy in report.policies:
        speed = policy.totals.measured
        assert speed.turns == 7
        assert speed.tokens_per_second == pytest.approx(policy.totals.reprefill / policy.totals.seconds)
        assert speed.peak_bytes == max(turn.cost.measured.peak_bytes for turn in policy.turns) > 0
