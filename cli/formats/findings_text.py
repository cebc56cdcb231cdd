"""The findings about a template, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ...probes.findings import SEVERITIES, Finding, Ignored

_WORDS = {"error": ("✗ error", "red"), "warning": ("! warning", "yellow"), "note": ("· note", "cyan")}


def draw_findings(
    findings: Sequence[Finding], ignored: Sequence[Ignored], source: str, console: Console
) -> None:
    """Print findings with what helps, and what was accepted."""
    if not findings:
        console.print("[green]✓[/green] No findings.")
    for each in findings:
        console.print(_finding(each, source), soft_wrap=True)
        console.print(f"    help: {escape(each.help)}.", style="dim", soft_wrap=True)
    for accepted in ignored:
        said = f"  ignored: {accepted.finding.rule} ({accepted.reason})"
        console.print(escape(said), style="dim", soft_wrap=True)


def _finding(each: Finding, source: str) -> str:
    words, colour = _WORDS[each.severity]
    where = f" {source}:{each.line}" if each.line else ""
    likely = ", likely" if each.confidence == "likely" else ""
    return (
        f"[{colour}]{words}[/{colour}] [bold]{each.rule}[/bold]{escape(f'{where}{likely}: {each.message}')}"
    )


def add_count_columns(table: Table) -> None:
    """Add a column for the number of findings of each severity."""
    for severity in SEVERITIES:
        table.add_column(f"{severity}s", justify="right")


def counts(findings: Sequence[Finding]) -> list[str]:
    """Return the cells of those columns."""
    return [str(sum(each.severity == severity for each in findings)) for severity in SEVERITIES]
