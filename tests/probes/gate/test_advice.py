"""What `--allow` has to say."""

import pytest
from tplaudit.probes.gate.advice import all_patterns, patterns
from tplaudit.probes.gate.allowances import allowing, read_allowances
from tplaudit.probes.gate.report import Change
from tplaudit.probes.gate.subject import Subject, read_subject


def change(rule: str, *subjects: str | Subject, kind: str = "changed", accepted: str | None = None) -> Change:
    named = tuple(subject if isinstance(subject, Subject) else read_subject(subject) for subject in subjects)
    return Change(kind, rule, "", None, None, "", "error", None, named, (), accepted, "")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (change("generation-prompt", "plain/chat"), ("changed:generation-prompt",)),
        (change("prompt-changed", "plain/chat", "plain/chat@raw"), ("changed:plain/chat",)),
        (
            change("prompt-changed", Subject("plain", "chat", view="rag"), "tools/round"),
            ("changed:plain/chat", "changed:tools/round"),
        ),
        (change("prompt-changed", "plain/chat", "plain/question"), ("changed:plain/*",)),
        (
            change("prompt-changed", "plain/a", "tools/a", "reasoning/a", "system/a"),
            ("changed:prompt-changed",),
        ),
        (change("prompt-changed", "transcript/a[1]*?.jsonl"), ("changed:transcript/a[[]1][*][?].jsonl",)),
        (change("prompt-changed", "plain/chat", accepted="agreed"), ()),
        (change("text-lost", "plain/chat", kind="regressed"), ()),
    ],
)
def test_one_change(changed: Change, expected: tuple[str, ...]) -> None:
    assert patterns(changed) == expected
    for subject in changed.subjects if expected else ():
        assert allowing(read_allowances(expected), changed.rule, subject) is not None


def test_all_of_them_without_what_another_allows_already() -> None:
    found = [
        change("prompt-changed", "plain/a", "tools/a", "reasoning/a", "system/a"),
        change("prompt-changed", "tools/b"),
        change("generation-prompt", "tools/a"),
        change("text-lost", "tools/a", kind="regressed"),
        change("named-template", "template/rag", accepted="agreed"),
    ]
    assert all_patterns(found) == ("changed:prompt-changed", "changed:generation-prompt")
    assert all_patterns(found[3:]) == ()
