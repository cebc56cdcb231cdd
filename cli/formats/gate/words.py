"""Words that several of the gate's formats share."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ....probes.gate.advice import patterns
from ....probes.gate.report import BudgetResult, Change, GateReport, Outcome

HEADLINES: dict[Outcome, str] = {
    "regressed": "something is worse than it was",
    "changed": "nothing is worse, but prompts changed",
    "fixed": "something is better than it was, and nothing is worse or different",
    "cosmetic": "the text changed, and its behaviour did not",
    "unchanged": "nothing changed",
    "nothing-checked": "nothing was checked",
}


def headline(report: GateReport) -> str:
    """Say the verdict in one line, without a full stop."""
    return "; ".join((f"{HEADLINES[report.outcome]}{_whether_meant(report)}", *_further_reasons(report)))


def _whether_meant(report: GateReport) -> str:
    """Say of the worst changes whether somebody agreed to them."""
    found = [change for change in report.changes if change.kind == report.outcome]
    if any(change.accepted for change in found):
        return " (accepted)" if all(change.accepted for change in found) else " (accepted in part)"
    return " that nobody allowed" if report.outcome == "changed" and report.against == "template" else ""


def _further_reasons(report: GateReport) -> Iterator[str]:
    """Yield why the gate fails apart from the worst changes."""
    failed = [budget for budget in report.budgets if not budget.passed and not budget.accepted]
    if failed:
        yield f"{len(failed)} of {len(report.budgets)} budgets not kept"
    if report.outcome != "nothing-checked" and any(map(is_failure, report.notes)):
        yield "something was not checked"
    if report.verdict == "fail" and report.against == "signature" and report.outcome == "fixed":
        yield "the signature is of what it was"
    if report.verdict == "fail" and not report.failing() and not failed and report.warnings:
        yield f"there are warnings ({len(report.warnings)})"


def is_failure(note: str) -> bool:
    """Return whether a note says that something was not checked, which lets the gate fail."""
    return note.startswith("nothing was checked")


def compared(report: GateReport) -> str:
    """Say how much was compared."""
    return f"{report.compared} renders and verdicts compared in {len(report.checks)} checks"


def advice(change: Change, report: GateReport) -> str | None:
    """Say what lets a change pass that is meant; None where nothing does but a repair or an ignore entry."""
    return None if report.against == "signature" else _options(patterns(change)) or None


def advice_for_all(report: GateReport) -> str | None:
    """Say what lets all changes pass together, in one line; None where `advice` on one of them says it."""
    several = sum(advice(change, report) is not None for change in report.changes) > 1
    return f"If all changed prompts are meant: {_options(report.allow)}" if several else None


def _options(found: tuple[str, ...]) -> str:
    return " ".join(f"--allow {shlex.quote(pattern)}" for pattern in found)


def facts(report: GateReport) -> Iterator[str]:
    """Yield what a reader has to know apart from changes and budgets: sentences without a full stop."""
    worse = sum(change.kind == "regressed" for change in report.failing())
    if worse and report.allow:
        yield f"what regressed ({worse}) cannot be allowed: repair it, or say why not in [[gate.ignore]]"
    yield from report.notes


def budget_text(budget: BudgetResult) -> str:
    """Say what became of a budget, without a full stop."""
    where = f"{budget.transcript} under {budget.policy}"
    shown = f"base {number(budget.base)}, head {head_text(budget)}, limit {limit_text(budget)}"
    return f"{budget.name} for {where}: {shown} ({budget.reason})"


def head_text(budget: BudgetResult) -> str:
    """Write the head's number, and its error where that is known."""
    return number(budget.head) + (f" ± {budget.error:.2g}" if budget.error else "")


def limit_text(budget: BudgetResult) -> str:
    """Write a limit, and the number that it came to where that is another."""
    came_to = number(budget.allowed)
    return (
        budget.limit if budget.allowed is None or budget.limit == came_to else f"{budget.limit} = {came_to}"
    )


def number(value: float | None) -> str:
    """Write a number; a dash for none."""
    if value is None:
        return "-"
    return str(int(value)) if float(value).is_integer() else f"{value:g}"
