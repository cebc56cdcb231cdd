"""The gate's report for a terminal. Symbols always come with words, so that nothing depends on colour."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ....probes.gate.compare.differences import Kind
from ....probes.gate.report import Change, GateReport
from ....probes.gate.rules import GATE_RULES
from ..tables import titled
from .words import advice, advice_for_all, compared, facts, head_text, headline, limit_text, number

_WORDS: dict[Kind, tuple[str, str]] = {
    "regressed": ("✗ regressed", "red"),
    "changed": ("≠ changed", "yellow"),
    "fixed": ("✓ fixed", "green"),
    "cosmetic": ("· cosmetic", "cyan"),
}
_DIFF = {"-": "red", "+": "green"}


def draw(reports: Sequence[GateReport], console: Console) -> None:
    """Print the reports."""
    for number_of, report in enumerate(reports):
        if number_of:
            console.print()
        _draw(report, console)


def _draw(report: GateReport, console: Console) -> None:
    passed = report.verdict == "pass"
    mark = "[green]✓ pass[/green]" if passed else "[red]✗ fail[/red]"
    console.print(
        f"[bold]{escape(report.base.source)} -> {escape(report.head.source)}[/bold]", soft_wrap=True
    )
    console.print(f"{mark}: {escape(headline(report))}.", soft_wrap=True)
    for change in report.changes:
        _draw_change(change, report, console)
    if report.budgets:
        console.print()
        console.print(_budgets(report))
    console.print()
    together = advice_for_all(report)
    if together is not None:
        console.print(escape(together), soft_wrap=True)
    for warning in report.warnings:
        console.print(f"[yellow]! {escape(warning)}[/yellow]", soft_wrap=True)
    for fact in facts(report):
        console.print(escape(f"Note: {fact}."), style="dim", soft_wrap=True)
    console.print(escape(f"{compared(report)}."), style="dim", soft_wrap=True)


def _draw_change(change: Change, report: GateReport, console: Console) -> None:
    words, colour = _WORDS[change.kind]
    where = f" {report.path}:{change.line}" if change.line and report.path else ""
    console.print()
    console.print(
        f"[{colour}]{words}[/{colour}] [bold]{change.rule}[/bold]{escape(f'{where}: {change.message}')}.",
        soft_wrap=True,
    )
    for line in change.diff:
        console.print(Text(f"    {line}", style=_DIFF.get(line[:1], "dim")), soft_wrap=True)
    if change.accepted:
        console.print(escape(f"    accepted: {change.accepted}"), style="dim", soft_wrap=True)
        return
    meant = advice(change, report)
    if meant:
        console.print(escape(f"    If this is meant: {meant}"), style="dim", soft_wrap=True)
    elif change.kind == "regressed":
        console.print(f"    help: {escape(GATE_RULES[change.rule].help)}.", style="dim", soft_wrap=True)


def _budgets(report: GateReport) -> Table:
    table = titled("budgets", "budget", "transcript", "policy")
    for heading in ("base", "head", "limit"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for each in report.budgets:
        kept = "[green]✓ kept[/green]" if each.passed else "[red]✗ not kept[/red]"
        reason = (
            f": accepted, {each.accepted}"
            if each.accepted
            else ""
            if each.allowed is not None
            else f": {each.reason}"
        )
        cells = (
            each.name,
            each.transcript,
            each.policy,
            number(each.base),
            head_text(each),
            limit_text(each),
        )
        table.add_row(*map(escape, cells), f"{kept}{escape(reason)}")
    return table
