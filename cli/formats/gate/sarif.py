"""The gate's report as SARIF 2.1.0, for code scanning: what is worse or different, not what is better.

Source: OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0". There are no timestamps,
and fingerprints name what changed and not the line, so that the same change stays the same result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from .... import __version__
from ....probes.findings import Rule
from ....probes.gate.budgets import BUDGETS
from ....probes.gate.report import BudgetResult, Change, GateReport
from ....probes.gate.rules import GATE_RULES
from ...output import json_text
from .words import advice, advice_for_all, budget_text, facts, headline, is_failure

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
FINGERPRINT = "tplauditGate/v1"


def sarif_text(reports: Sequence[GateReport]) -> str:
    """Return the SARIF document."""
    results = [result for report in reports for result in _results(report)]
    used = {result["ruleId"] for result in results}
    rules = [_rule(rule) for rule in _rules() if rule.id in used]
    places = {rule["id"]: number for number, rule in enumerate(rules)}
    for result in results:
        result["ruleIndex"] = places[result["ruleId"]]
    run = {
        "tool": {
            "driver": {
                "name": "tplaudit",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": rules,
            }
        },
        "automationDetails": {"id": "tplaudit-gate/"},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [each for report in reports for each in _notifications(report)],
            }
        ],
        "results": results,
    }
    return json_text({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _rules() -> Iterator[Rule]:
    yield from GATE_RULES.values()
    for name, what in BUDGETS.items():
        yield Rule(
            name, "error", f"A budget is not kept: {what}", "See `tplaudit replay` with both templates"
        )
    yield Rule(
        "nothing-checked", "error", "A gate that checks nothing fails", "Give templates that render something"
    )


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "shortDescription": {"text": f"{rule.title}."},
        "help": {"text": f"{rule.help}."},
        "defaultConfiguration": {"level": rule.severity},
    }


def _results(report: GateReport) -> Iterator[dict[str, Any]]:
    for change in report.changes:
        if change.severity is not None:
            yield _change(change, report)
    for budget in report.budgets:
        if not budget.passed:
            yield _budget(budget, report)
    for note in report.notes:
        if is_failure(note):
            yield _result("nothing-checked", f"{note}.", report, None, note, None)


def _notifications(report: GateReport) -> Iterator[dict[str, Any]]:
    """Yield what is no result: the verdict, warnings, and what else a reader has to know."""
    yield _notification("note", f"{report.verdict}: {headline(report)}.", report)
    together = advice_for_all(report)
    if together is not None:
        yield _notification("note", together, report)
    for warning in report.warnings:
        yield _notification("warning", f"{warning}.", report)
    for fact in facts(report):
        if not is_failure(fact):
            yield _notification("note", f"{fact}.", report)


def _notification(level: str, text: str, report: GateReport) -> dict[str, Any]:
    return {"level": level, "message": {"text": f"{report.head.source}: {text}"}}


def _change(change: Change, report: GateReport) -> dict[str, Any]:
    meant = advice(change, report)
    text = f"{change.message}." + (f" If this is meant: {meant}" if meant else "")
    return _result(change.rule, text, report, change.line, change.fingerprint, change.accepted)


def _budget(budget: BudgetResult, report: GateReport) -> dict[str, Any]:
    key = f"{budget.name}\0{budget.transcript}\0{budget.policy}"
    return _result(budget.name, f"{budget_text(budget)}.", report, None, key, budget.accepted)


def _result(
    rule: str, text: str, report: GateReport, line: int | None, key: str, accepted: str | None
) -> dict[str, Any]:
    path = report.path
    fingerprint = hashlib.sha256(f"{path}\0{key}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return {
        "ruleId": rule,
        "level": "error",
        "message": {"text": text[:1].upper() + text[1:]},
        "locations": [] if path is None else [_location(path, line)],
        "partialFingerprints": {FINGERPRINT: fingerprint},
        **({"suppressions": [{"kind": "external", "justification": accepted}]} if accepted else {}),
    }


def _location(path: str, line: int | None) -> Mapping[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": quote(path)}, "region": {"startLine": line or 1}}
    return {"physicalLocation": place}
