"""Tables with a title, as several reports have them."""

from __future__ import annotations

from rich.table import Table


def titled(title: str, *columns: str) -> Table:
    """Return an empty table with its title at the left; its columns, if any yet, fold what is too long."""
    table = Table(title=title, title_justify="left", title_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
