"""Limits for what transcripts cost."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from tplaudit import fixtures
from tplaudit.probes.cost.calibration import (
    CalibratedModel,
    Calibration,
    Point,
    calibration_file,
    config_digest,
    write_calibration,
)
from tplaudit.probes.cost.machine import Machine
from tplaudit.probes.errors import InputError, UsageError
from tplaudit.probes.gate.budgets import Budget, evaluate, read_budget_option, read_limit
from tplaudit.probes.gate.observe.replays import Replaying, ReplayNumbers, replay
from tplaudit.probes.gate.prediction import Predictor, predictor
from tplaudit.probes.models.template_files import load_template
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.tokenization.files import load_bundled_tokenizer
from tplaudit.probes.transcripts.reader import open_transcript

PAIRS = Path(fixtures.__file__).parent / "gate"
STRICT = PAIRS / "strict.jinja"
BASE = ReplayNumbers(
    "runs/long.jsonl",
    "omlx:route=chat",
    4,
    0,
    1000,
    ((100, 0), (50, 200), (150, 300), (100, 350)),
    200,
    120,
    None,
)


@pytest.mark.parametrize(
    ("text", "base", "allowed"),
    [
        ("1000", 7, 1000),
        ("0.5", None, 0.5),
        ("base", 200, 200),
        ("base+5%", 200, 210),
        ("base - 10%", 200, 180),
        ("base+50", 200, 250),
        ("base-0.5", 2, 1.5),
        ("base", None, None),
    ],
)
def test_limits(text: str, base: float | None, allowed: float | None) -> None:
    assert read_limit(text, "here").of(base) == pytest.approx(allowed)


@pytest.mark.parametrize("text", ["", "many", "+5", "5%", "base5", "base+", "-3", "base+5%%", "1e9"])
def test_no_limits(text: str) -> None:
    with pytest.raises(UsageError, match="is no limit"):
        read_limit(text, "here")


def test_options_name_policy_and_transcript() -> None:
    budget = read_budget_option("max-avoidable-tokens", "base+5%@omlx:route=chat@long*")
    assert budget.covers(BASE)
    assert not budget.covers(dataclasses.replace(BASE, policy="omlx"))
    assert not budget.covers(dataclasses.replace(BASE, transcript="runs/short.jsonl"))
    assert read_budget_option("max-seconds", "3").covers(BASE)


@pytest.mark.parametrize(
    ("name", "limit", "kept"),
    [
        ("max-avoidable-tokens", "200", True),
        ("max-avoidable-tokens", "base-1", False),
        ("max-reprefill-ratio", "0.4", True),
        ("max-reprefill-ratio", "0.39", False),
        ("min-divergence-depth", "120", True),
        ("min-divergence-depth", "base+1", False),
        ("max-seconds", "4", True),
        ("max-seconds", "3.9", False),
    ],
)
def test_each_budget(name: str, limit: str, kept: bool) -> None:
    (result,) = evaluate([Budget(name, read_limit(limit, ""))], [(BASE, BASE)], predictor(100.0, None))
    assert result.passed == kept
    assert result.base == result.head is not None


def test_seconds_are_added_turn_by_turn() -> None:
    """A token behind a long prefix may take longer than one behind a short one."""
    slower = Predictor(lambda tokens, depth: tokens * (1 + depth / 100), "a test")
    (result,) = evaluate([Budget("max-seconds", read_limit("1475", ""))], [(BASE, BASE)], slower)
    assert result.head == 100 + 50 * 3 + 150 * 4 + 100 * 4.5 == 1300
    assert result.passed
    assert result.reason.endswith("(predicted)")


CALIBRATION = Calibration(
    model=CalibratedModel("big", "llama", "0" * 64),
    machine=Machine("Darwin arm64", "Apple M9", 8, None),
    versions={},
    weights="4 bits",
    blas="metal",
    measured="2026-11-30",
    points=tuple(
        Point(new, depth, (0.01 + new * 1e-3 + 1e-6 * new * (depth + new / 2) + 1e-4 * (new == depth),))
        for new in (48, 256, 1000)
        for depth in (0, 48, 1000)
    ),
)


def test_seconds_come_from_a_calibration(gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "calibration.json"
    write_calibration(CALIBRATION, file)
    budgets = (read_budget_option("max-seconds", "0.001"),)
    options = {"transcripts": str(fixtures.transcript("chat")), "policies": ("omlx",), "budgets": budgets}
    report = gate(PAIRS / "strict.jinja", PAIRS / "in-place.jinja", calibration=str(file), **options)
    (result,) = report.budgets
    cost = CALIBRATION.cost
    assert cost is not None and cost.error is not None
    replaying = Replaying([parse_policy("omlx")], load_bundled_tokenizer())
    chat, strict = open_transcript(fixtures.transcript("chat")), load_template(PAIRS / "in-place.jinja")
    (numbers,) = replay("chat", chat, strict, replaying)
    expected = sum(cost.seconds(new, depth) for new, depth in numbers.prefills)
    assert result.head == pytest.approx(expected, abs=1e-5)
    assert result.error == pytest.approx(expected * cost.error, abs=1e-5)
    source = "a calibration of big on Apple M9 (Darwin arm64, 8 cores) of 2026-11-30"
    assert f"seconds are predicted from {source}, with an error of {cost.error:.0%} (root mean square)" in (
        report.notes
    )
    assert "(predicted)" in result.reason


def test_the_calibration_of_the_model_on_this_machine_is_found(
    gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    shutil.copy(PAIRS / "strict.jinja", model / "chat_template.jinja")
    config = {"model_type": "llama", "num_hidden_layers": 3}
    (model / "config.json").write_text(json.dumps(config))
    monkeypatch.setenv("TPLAUDIT_CACHE_DIR", str(tmp_path / "cache"))
    budgets = (read_budget_option("max-seconds", "1000"),)
    options = {
        "transcripts": str(fixtures.transcript("claude-code")),
        "policies": ("omlx",),
        "budgets": budgets,
    }
    identity = CalibratedModel("mine", "llama", config_digest(config))
    kept = dataclasses.replace(CALIBRATION, model=identity)
    file = calibration_file(identity)
    write_calibration(kept, file)
    report = gate(STRICT, model, **options)
    assert report.budgets[0].passed
    notes = "; ".join(report.notes)
    assert "a calibration of mine on Apple M9" in notes
    assert "turns are extrapolated: nothing longer than 2,000 tokens was measured" in notes
    assert "another model" not in notes
    (model / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(UsageError, match="this model was not calibrated"):
        gate(STRICT, model, **options)
    other = gate(STRICT, model, calibration=str(file), **options)
    assert any(note.startswith("the calibration is of another model, mine") for note in other.notes)
    assert other.budgets[0].error is None
    with pytest.raises(UsageError, match="from one thing"):
        gate(STRICT, model, calibration=str(file), prefill_rate=3.0, **options)
    write_calibration(dataclasses.replace(kept, points=()), file)
    with pytest.raises(InputError, match="nothing was measured"):
        gate(STRICT, model, calibration=str(file), **options)


def test_a_replay_that_never_diverges_keeps_every_depth() -> None:
    straight = dataclasses.replace(BASE, depth=None)
    budget = Budget("min-divergence-depth", read_limit("base", ""))
    (result,) = evaluate([budget], [(BASE, straight)], None)
    assert result.passed
    (result,) = evaluate([budget], [(straight, BASE)], None)
    assert not result.passed
    assert result.reason == "with the base no turn diverges"


def test_what_checks_nothing_is_not_kept() -> None:
    budget = Budget("max-avoidable-tokens", read_limit("9", ""), policy="vllm")
    (result,) = evaluate([budget], [(BASE, BASE)], None)
    assert not result.passed
    assert "nothing was checked" in result.reason
    raised = dataclasses.replace(BASE, raised=4, avoidable=0, error="TemplateError: no")
    (result,) = evaluate([dataclasses.replace(budget, policy="*")], [(BASE, raised)], None)
    assert not result.passed
    assert "no turn rendered (TemplateError: no)" in result.reason
    relative = Budget("max-avoidable-tokens", read_limit("base", ""))
    (result,) = evaluate([relative], [(raised, BASE)], None)
    assert not result.passed
    assert "nothing to compare with" in result.reason


def test_in_the_gate(gate) -> None:
    chat = fixtures.transcript("chat")
    pair = (PAIRS / "strict.jinja", PAIRS / "in-place.jinja")
    budgets = (read_budget_option("max-avoidable-tokens", "base"), read_budget_option("max-seconds", "0.001"))
    report = gate(*pair, transcripts=str(chat), policies=("omlx",), budgets=budgets, prefill_rate=1000.0)
    assert [(each.name, each.passed) for each in report.budgets] == [
        ("max-avoidable-tokens", True),
        ("max-seconds", False),
    ]
    assert "seconds are predicted from 1,000 tokens per second, whatever the depth" in report.notes
    assert report.verdict == "fail"
    assert {"transcript/chat.jsonl", "replay/chat.jsonl"} <= {str(check.subject) for check in report.checks}
    assert [each.error for each in report.budgets] == [None, None]
    with pytest.raises(UsageError, match="a template alone does not say"):
        gate(*pair, transcripts=str(chat), budgets=budgets)
