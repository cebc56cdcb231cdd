"""What people agree to: allowed changes and known failures."""

from datetime import date
from pathlib import Path

import pytest
from tplaudit import fixtures
from tplaudit.probes.errors import UsageError
from tplaudit.probes.gate.allowances import KnownFailure, allowing, read_allowances
from tplaudit.probes.gate.subject import Subject

PAIRS = Path(fixtures.__file__).parent / "gate"
SUBJECT = Subject("tools", "round", "raw", view="tool_use")


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("*", True),
        ("tools", True),
        ("tools/*", True),
        ("tools/round", True),
        ("prompt-changed", True),
        ("prompt-*", True),
        ("tools/round@raw", True),
        ("tool_use:tools/round", True),
        ("tool_use:*@raw", True),
        ("rag:*", False),
        ("plain/*", False),
        ("generation-prompt", False),
        ("tools/loop", False),
    ],
)
def test_patterns_name_rules_conversations_and_groups(pattern: str, matches: bool) -> None:
    found = allowing(read_allowances([f"changed:{pattern}"]), "prompt-changed", SUBJECT)
    assert (found is not None) == matches


@pytest.mark.parametrize("item", ["changed", "regressed:*", "fixed:plain", "new:x", "", "changed:"])
def test_nothing_else_can_be_allowed(item: str) -> None:
    with pytest.raises(UsageError, match="cannot be allowed"):
        read_allowances([item])


def test_an_entry_expires_after_its_last_day() -> None:
    entry = KnownFailure("text-lost", "r", expires=date(2027, 1, 31))
    assert not entry.expired(date(2027, 1, 31))
    assert entry.expired(date(2027, 2, 1))


def test_a_known_failure_does_not_count_and_an_expired_one_does(gate) -> None:
    rules = {"text-lost", "history-rewritten"}
    known = tuple(KnownFailure(rule, "agents are told", expires=date(2027, 1, 31)) for rule in sorted(rules))
    pair = (PAIRS / "strict.jinja", PAIRS / "breaks-tools.jinja")
    report = gate(*pair, known=known, today=date(2027, 1, 31))
    assert report.verdict == "pass"
    assert report.outcome == "regressed"
    assert {change.accepted for change in report.changes if change.rule in rules} == {"agents are told"}
    late = gate(*pair, known=known, today=date(2027, 2, 1))
    assert late.verdict == "fail"
    assert all("expired on 2027-01-31" in warning for warning in late.warnings)


def test_an_entry_for_one_conversation_leaves_the_others(gate) -> None:
    known = (
        KnownFailure("text-lost", "known", where="tools/round"),
        KnownFailure("history-rewritten", "known"),
    )
    report = gate(PAIRS / "strict.jinja", PAIRS / "breaks-tools.jinja", known=known)
    lost = [change for change in report.changes if change.rule == "text-lost"]
    accepted = {subject.place for change in lost if change.accepted for subject in change.subjects}
    assert accepted == {"tools/round"}
    assert report.verdict == "fail"


def test_what_matches_nothing_is_a_warning(gate) -> None:
    strict = PAIRS / "strict.jinja"
    options = {
        "known": (KnownFailure("text-lost", "r"),),
        "allowances": read_allowances(["changed:tools/*", "new"]),
    }
    report = gate(strict, strict, **options)
    assert report.warnings == (
        "ignore entry 'text-lost' matches nothing",
        "--allow changed:tools/* matches nothing",
    )
    assert report.verdict == "pass"
    assert gate(strict, strict, fail_on="warning", **options).verdict == "fail"


def test_a_regression_cannot_be_allowed_away(gate) -> None:
    allow = read_allowances(["changed:*"])
    assert gate(PAIRS / "strict.jinja", PAIRS / "dropping.jinja", allowances=allow).verdict == "fail"
    assert gate(PAIRS / "strict.jinja", PAIRS / "newline.jinja", allowances=allow).verdict == "pass"
