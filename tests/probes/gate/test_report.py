"""The report as a value and as JSON."""

import json
from pathlib import Path

import pytest
from tplaudit import fixtures
from tplaudit.probes.gate.budgets import read_budget_option
from tplaudit.probes.gate.report import document, fails, severities, to_json

PAIRS = Path(fixtures.__file__).parent / "gate"
STRICT = PAIRS / "strict.jinja"


@pytest.fixture
def report(gate):
    return gate(
        STRICT,
        PAIRS / "breaks-tools.jinja",
        transcripts=str(fixtures.transcript("chat")),
        policies=("as-is",),
        budgets=(read_budget_option("max-avoidable-tokens", "0"),),
    )


def test_json_has_the_names_of_the_contract(report) -> None:
    document = to_json(report)
    assert document["schema"] == "tplaudit.gate/1"
    assert document["verdict"] == "fail"
    assert {"kind", "rule", "where", "base", "head", "message"} <= set(document["changes"][0])
    assert "tools/round" in document["changes"][0]["subjects"]
    assert {"name": "placements", "compared": report.checks[0].compared} in document["checks"]
    (budget,) = document["budgets"]
    assert {"name", "limit", "base", "head", "pass"} <= set(budget)


def test_json_is_plain_and_repeats(report, gate) -> None:
    document = to_json(report)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    again = gate(STRICT, PAIRS / "breaks-tools.jinja")
    assert to_json(again) == to_json(gate(STRICT, PAIRS / "breaks-tools.jinja"))


def test_several_reports_are_one_document(report, gate) -> None:
    good = gate(STRICT, STRICT)
    assert document([good, good])["verdict"] == "pass"
    both = document([good, report])
    assert (both["verdict"], len(both["results"])) == ("fail", 2)


def test_fingerprints_do_not_move_with_lines(gate, tmp_path: Path) -> None:
    moved = tmp_path / "moved.jinja"
    moved.write_text("{#- one\n more\n comment -#}\n" + (PAIRS / "newline.jinja").read_text())
    (first,) = gate(STRICT, PAIRS / "newline.jinja").changes
    (second,) = gate(STRICT, moved).changes
    assert first.line != second.line
    assert first.fingerprint == second.fingerprint
    others = {change.fingerprint for change in gate(STRICT, PAIRS / "breaks-tools.jinja").changes}
    assert len(others) == 5


def test_severities(report, gate) -> None:
    assert severities(report.changes, (), ()) == {"error"}
    fixed = gate(STRICT, PAIRS / "in-place.jinja")
    assert severities(fixed.changes, (), ()) == frozenset()
    assert fails(frozenset({"error"}), "error")
    assert not fails(frozenset({"warning"}), "error")
    assert fails(frozenset({"note"}), "note")
    assert not fails(frozenset({"error"}), "never")
