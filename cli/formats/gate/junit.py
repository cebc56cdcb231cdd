"""The gate's report as JUnit XML: one test case for each thing that was compared, and for each budget.

There are no timestamps and times, so that the same input gives the same file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from ....probes.gate.report import Change, GateReport
from ....probes.gate.subject import Subject
from .words import advice, advice_for_all, budget_text, facts, headline, is_failure

#: Characters that XML 1.0 cannot hold.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_text(reports: Sequence[GateReport]) -> str:
    """Return the XML document."""
    suites = [_suite(report) for report in reports]
    root = ElementTree.Element("testsuites", name="tplaudit gate")
    for count in ("tests", "failures", "errors", "skipped"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in suites)))
    root.extend(suites)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode", xml_declaration=False)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _suite(report: GateReport) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name=_legal(report.head.source))
    found: dict[Subject, list[Change]] = {}
    for change in report.changes:
        if change.severity is not None:
            for check in dict.fromkeys(subject.check for subject in change.subjects):
                found.setdefault(check, []).append(change)
    checks = dict.fromkeys((*(check.subject for check in report.checks), *found))
    for check in checks:
        case = ElementTree.SubElement(suite, "testcase", classname="tplaudit.gate", name=_legal(str(check)))
        changes = found.get(check, [])
        failing = [change for change in changes if not change.accepted]
        if failing:
            _failure(
                case,
                "; ".join(change.message for change in failing),
                failing[0].rule,
                _texts(failing, report),
            )
        elif changes:
            reasons = dict.fromkeys(f"{change.rule}: {change.accepted}" for change in changes)
            ElementTree.SubElement(case, "skipped", message=_legal("; ".join(reasons)))
    for budget in report.budgets:
        name = f"{budget.name} {budget.transcript} {budget.policy}"
        case = ElementTree.SubElement(suite, "testcase", classname="tplaudit.budget", name=_legal(name))
        if budget.accepted:
            ElementTree.SubElement(case, "skipped", message=_legal(budget.accepted))
        elif not budget.passed:
            _failure(case, budget_text(budget), budget.name, budget_text(budget))
    unchecked = [note for note in report.notes if is_failure(note)]
    if unchecked:
        case = ElementTree.SubElement(
            suite, "testcase", classname="tplaudit.gate", name="something is checked"
        )
        _failure(case, "; ".join(unchecked), "nothing-checked", "\n".join(unchecked))
    said = ElementTree.SubElement(suite, "system-out")
    said.text = _legal("\n".join(_said(report)))
    suite.set("tests", str(len(suite.findall("testcase"))))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", "0")
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    return suite


def _failure(case: ElementTree.Element, message: str, kind: str, text: str) -> None:
    failure = ElementTree.SubElement(case, "failure", message=_legal(message), type=kind)
    failure.text = _legal(text)


def _texts(changes: Sequence[Change], report: GateReport) -> str:
    return "\n\n".join("\n".join(_lines(change, report)) for change in changes)


def _lines(change: Change, report: GateReport) -> Iterator[str]:
    yield f"{change.kind} {change.rule}: {change.message}"
    yield from change.diff
    meant = advice(change, report)
    if meant is not None:
        yield f"If this is meant: {meant}"


def _said(report: GateReport) -> Iterator[str]:
    yield f"{report.verdict}: {headline(report)}"
    together = advice_for_all(report)
    if together is not None:
        yield together
    yield from (f"warning: {warning}" for warning in report.warnings)
    yield from (f"note: {fact}" for fact in facts(report))


def _legal(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", text)
