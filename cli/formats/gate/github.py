"""The gate's report as GitHub's workflow commands, which become annotations on the template's lines.

Source: GitHub's documentation, "Workflow commands for GitHub Actions".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ....probes.gate.report import GateReport
from ..visible import visible
from .words import advice, advice_for_all, budget_text, facts, is_failure


def github_text(reports: Sequence[GateReport]) -> str:
    """Return one workflow command a line."""
    return visible("".join(f"{line}\n" for report in reports for line in _commands(report)))


def _commands(report: GateReport) -> Iterator[str]:
    for change in report.changes:
        level = "error" if change.severity == "error" and not change.accepted else "notice"
        message = change.message + (f" (accepted: {change.accepted})" if change.accepted else "")
        meant = advice(change, report)
        message += f"\nIf this is meant: {meant}" if meant else ""
        message += "".join(f"\n{line}" for line in change.diff)
        yield _command(level, f"{change.kind}: {change.rule}", message, report.path, change.line)
    for budget in report.budgets:
        if not budget.passed:
            level = "notice" if budget.accepted else "error"
            yield _command(level, f"budget: {budget.name}", budget_text(budget), report.path, None)
    for warning in report.warnings:
        yield _command("warning", "tplaudit", warning, None, None)
    together = advice_for_all(report)
    if together is not None:
        yield _command("notice", "tplaudit", together, None, None)
    for fact in facts(report):
        yield _command("error" if is_failure(fact) else "notice", "tplaudit", fact, None, None)


def _command(level: str, title: str, message: str, path: str | None, line: int | None) -> str:
    place = {"file": path, "line": None if line is None or path is None else str(line), "title": title}
    properties = ",".join(f"{name}={_property(value)}" for name, value in place.items() if value is not None)
    return f"::{level} {properties}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
