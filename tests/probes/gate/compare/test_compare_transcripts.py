"""Transcripts in the gate: their prompts turn by turn, and what their replays count."""

import dataclasses
from pathlib import Path

from tplaudit import fixtures
from tplaudit.probes.gate.compare.compare_transcripts import compare_replays
from tplaudit.probes.gate.observe.replays import ReplayNumbers
from tplaudit.probes.gate.subject import Subject

PAIRS = Path(fixtures.__file__).parent / "gate"
STRICT = PAIRS / "strict.jinja"
LOG = Subject("transcript", "log.jsonl")
NUMBERS = ReplayNumbers(
    "a/chat.jsonl", "omlx", 4, 0, 1000, ((100, 0), (50, 200), (150, 300), (100, 350)), 200, 120, None
)


def of_transcripts(report) -> set[tuple[str, str, tuple[str, ...]]]:
    return {
        (change.kind, change.rule, tuple(map(str, change.subjects)))
        for change in report.changes
        if any(subject.group in ("transcript", "replay") for subject in change.subjects)
    }


def test_turns_that_no_longer_fail(gate, reminders: Path) -> None:
    report = gate(STRICT, PAIRS / "in-place.jinja", transcripts=str(reminders), policies=("as-is",))
    assert of_transcripts(report) == {("fixed", "replay-raises", ("replay/log.jsonl@as-is",))}
    assert report.verdict == "pass"


def test_plain_turns_of_a_transcript_have_to_stay_as_they_are(gate, reminders: Path) -> None:
    report = gate(STRICT, PAIRS / "newline.jinja", transcripts=str(reminders), policies=("as-is", "hoist"))
    (change,) = [change for change in report.changes if LOG in change.subjects]
    assert (change.kind, change.rule) == ("changed", "prompt-changed")
    assert Subject("plain", "chat") in change.subjects  # the same edit


def test_a_policy_that_treats_the_templates_otherwise_is_compared_by_numbers_alone(
    gate, reminders: Path
) -> None:
    report = gate(STRICT, PAIRS / "in-place.jinja", transcripts=str(reminders), policies=("omlx",))
    assert not any(LOG in change.subjects for change in report.changes)
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
