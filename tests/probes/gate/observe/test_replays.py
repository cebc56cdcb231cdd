"""Transcripts in the gate: their prompts, and their numbers."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from tplaudit import fixtures
from tplaudit.probes.errors import InputError
from tplaudit.probes.gate.observe.replays import (
    Replaying,
    ReplayNumbers,
    compare_replays,
    replay,
    transcripts_in,
)
from tplaudit.probes.models.template_files import load_template
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.tokenization.files import load_bundled_tokenizer
from tplaudit.probes.transcripts.reader import open_transcript

PAIRS = Path(fixtures.__file__).parent / "gate"
STRICT = PAIRS / "strict.jinja"
NUMBERS = ReplayNumbers(
    "a/chat.jsonl", "omlx", 4, 0, 1000, ((100, 0), (50, 200), (150, 300), (100, 350)), 200, 120, None
)


@pytest.fixture
def reminders(tmp_path: Path) -> Path:
    """Return a folder with one transcript that has a later system turn."""
    messages = [
        {"role": "system", "content": "You keep the lighthouse's log."},
        {"role": "user", "content": "Which lamps burnt last night?"},
        {"role": "assistant", "content": "The northern and the eastern one."},
        {"role": "system", "content": "Reminder: the log closes at noon."},
        {"role": "user", "content": "And which of them failed?"},
        {"role": "assistant", "content": "None of them, all night long."},
    ]
    folder = tmp_path / "transcripts"
    folder.mkdir()
    (folder / "log.jsonl").write_text("".join(json.dumps(message) + "\n" for message in messages))
    (folder / "notes.md").write_text("no transcript")
    return folder


def told(report) -> set[tuple[str, str, tuple[str, ...]]]:
    return {
        (change.kind, change.rule, change.subjects)
        for change in report.changes
        if any(subject.startswith(("transcript", "replay")) for subject in change.subjects)
    }


def test_turns_that_no_longer_fail(gate, reminders: Path) -> None:
    report = gate(STRICT, PAIRS / "in-place.jinja", transcripts=str(reminders), policies=("as-is",))
    assert told(report) == {("fixed", "replay-raises", ("replay/log.jsonl@as-is",))}
    assert report.verdict == "pass"


def test_plain_turns_of_a_transcript_have_to_stay_as_they_are(gate, reminders: Path) -> None:
    report = gate(STRICT, PAIRS / "newline.jinja", transcripts=str(reminders), policies=("as-is", "hoist"))
    (change,) = [change for change in report.changes if "transcript/log.jsonl" in change.subjects]
    assert (change.kind, change.rule) == ("changed", "prompt-changed")
    assert "plain/chat" in change.subjects  # the same edit


def test_a_policy_that_treats_the_templates_otherwise_is_compared_by_numbers_alone(
    gate, reminders: Path
) -> None:
    report = gate(STRICT, PAIRS / "in-place.jinja", transcripts=str(reminders), policies=("omlx",))
    assert not any("transcript/log.jsonl" in change.subjects for change in report.changes)
    assert report.verdict == "pass"


def test_a_transcript_of_which_nothing_renders_fails(gate, reminders: Path) -> None:
    never = "{{ raise_exception('no') if messages[1] and messages[1].content.startswith('Which') }}"
    text = never + "{% for m in messages %}{{ m.content }}{% endfor %}"
    report = gate(text, text, transcripts=str(reminders), policies=("as-is",))
    assert report.outcome == "unchanged"
    assert report.verdict == "fail"
    assert "nothing was checked of replay/log.jsonl: no turn renders" in report.notes


def test_avoidable_tokens_and_failing_turns() -> None:
    more = dataclasses.replace(NUMBERS, avoidable=300)
    (worse,) = compare_replays(NUMBERS, more)
    assert (worse.kind, worse.rule, worse.base, worse.head) == ("regressed", "replay-avoidable", "200", "300")
    (better,) = compare_replays(more, NUMBERS)
    assert better.kind == "fixed"
    assert list(compare_replays(NUMBERS, NUMBERS)) == []
    failing = dataclasses.replace(NUMBERS, raised=1, avoidable=0, error="TemplateError: no")
    (raising,) = compare_replays(NUMBERS, failing)
    assert (raising.kind, raising.rule, raising.detail) == ("regressed", "replay-raises", "TemplateError: no")
    assert [each.kind for each in compare_replays(failing, NUMBERS)] == ["fixed"]


def test_the_layers_of_the_models_decide_on_the_cache(gate, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    shutil.copy(PAIRS / "in-place.jinja", model / "chat_template.jinja")
    (model / "config.json").write_text(json.dumps({"model_type": "qwen3_next"}))
    chat = str(fixtures.transcript("chat"))
    for base, head in ((STRICT, model), (model, STRICT)):
        report = gate(base, head, transcripts=chat, policies=("omlx",))
        assert "replayed against paged, blocks of 2048 tokens (omlx); layers: hybrid" in report.notes
    (model / "config.json").write_text("[")
    with pytest.raises(InputError, match="JSON"):
        gate(STRICT, model, transcripts=chat, policies=("omlx",))


def test_numbers_come_turn_by_turn() -> None:
    replaying = Replaying([parse_policy("omlx")], load_bundled_tokenizer())
    (numbers,) = replay(
        "chat", open_transcript(fixtures.transcript("chat")), load_template(STRICT), replaying
    )
    assert len(numbers.prefills) == numbers.rendered == 7
    assert numbers.prefills[0][1] == 0
    assert sum(new + reused for new, reused in numbers.prefills) == numbers.prompt_tokens
    assert all(reused % 256 == 0 for _, reused in numbers.prefills)
    assert numbers.prefills[-1][1] > 0


def test_folders(tmp_path: Path, reminders: Path) -> None:
    assert [path.name for path in transcripts_in(reminders)] == ["log.jsonl"]
    assert transcripts_in(reminders / "log.jsonl") == (reminders / "log.jsonl",)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no transcripts in it"):
        transcripts_in(tmp_path / "empty")
    with pytest.raises(InputError, match="no such file or folder"):
        transcripts_in(tmp_path / "missing")
