"""Words that several of the gate's formats share."""

from __future__ import annotations

from ...probes.gate.report import BudgetResult, Change, GateReport, Outcome
from ...probes.gate.shapes import SHAPES

#: The groups of the shipped conversations.
_GROUPS = {shape.group for shape in SHAPES}
HEADLINES: dict[Outcome, str] = {
    "regressed": "something is worse than it was",
    "changed": "prompts are other ones than they were",
    "fixed": "something is better than it was, nothing is worse or different",
    "cosmetic": "the text changed, and nothing that it does",
    "unchanged": "nothing changed",
    "nothing-checked": "nothing was checked",
}


def headline(report: GateReport) -> str:
    """Say the verdict in one line, without a full stop."""
    accepted = any(change.accepted for change in report.changes if change.kind == report.outcome)
    agreed = " (accepted)" if accepted and report.verdict == "pass" else ""
    failed = [budget for budget in report.budgets if not budget.passed and not budget.accepted]
    over = f"; {len(failed)} of {len(report.budgets)} budgets not kept" if failed else ""
    return f"{HEADLINES[report.outcome]}{agreed}{over}"


def compared(report: GateReport) -> str:
    """Say how much was compared."""
    return f"{report.compared} renders and verdicts compared in {len(report.checks)} checks"


def advice(change: Change, report: GateReport) -> str | None:
    """Say what lets a change pass that is meant; None where nothing does but a repair or an ignore entry."""
    if change.kind != "changed" or change.accepted or report.against == "signature":
        return None
    if change.rule != "prompt-changed":
        return f"--allow changed:{change.rule}"
    names = dict.fromkeys(subject.partition("@")[0].rpartition(":")[2] for subject in change.subjects)
    groups = dict.fromkeys(name.partition("/")[0] for name in names)
    if len(groups) == len(_GROUPS):
        return f"--allow changed:{change.rule}"
    patterns = names if len(names) <= len(groups) else [f"{group}/*" for group in groups]
    return " ".join(f"--allow 'changed:{pattern}'" for pattern in patterns)


def budget_text(budget: BudgetResult) -> str:
    """Say what became of a budget, without a full stop."""
    where = f"{budget.transcript} under {budget.policy}"
    shown = f"base {number(budget.base)}, head {number(budget.head)}, limit {limit_text(budget)}"
    return f"{budget.name} for {where}: {shown} ({budget.reason})"


def limit_text(budget: BudgetResult) -> str:
    """Write a limit, and the number that it came to where that is another."""
    came_to = number(budget.allowed)
    return (
        budget.limit if budget.allowed is None or budget.limit == came_to else f"{budget.limit} = {came_to}"
    )


def number(value: float | None) -> str:
    """Write a number; a dash for none."""
    return "-" if value is None else f"{value:g}" if value != int(value) else str(int(value))
