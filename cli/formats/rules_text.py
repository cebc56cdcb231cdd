"""The list of rules for a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ...probes.findings import RULES


def draw(console: Console) -> None:
    """Print the rules as a table."""
    table = Table(pad_edge=False)
    table.add_column("rule", no_wrap=True)
    table.add_column("severity", no_wrap=True)
    table.add_column("looks for")
    for rule in RULES.values():
        table.add_row(rule.id, rule.severity, escape(rule.title))
    console.print(table)
    console.print("More about a rule: tplaudit explain RULE.", style="dim")
