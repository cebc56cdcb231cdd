"""Where output goes: data to stdout or a file, words for people to stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..probes.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

#: Width of tables that are not shown on a terminal, in columns.
PIPED_WIDTH = 160


def write_json(document: Any, output: Path | None) -> None:
    """Write one JSON document."""
    write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", output)


def write_rich(draw: Callable[[Console], None], output: Path | None) -> None:
    """Write what `draw` prints on a console: with colours on a terminal, as plain text elsewhere."""
    from rich.console import Console

    terminal = output is None and sys.stdout.isatty()
    if terminal:
        draw(Console())
        return
    console = Console(
        file=open(os.devnull, "w"),  # noqa: SIM115, PTH123 - only recorded
        record=True,
        width=PIPED_WIDTH,
        force_terminal=False,
        color_system=None,
    )
    draw(console)
    text = console.export_text()
    write_text("".join(f"{line.rstrip()}\n" for line in text.splitlines()), output)


def write_text(text: str, output: Path | None) -> None:
    """Write a text as it is, to a file or to stdout."""
    if output is not None:
        try:
            output.write_text(text, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise UsageError(
                (error.strerror or "cannot be written").lower(),
                where=str(output),
                fix="give another --output",
            ) from None
        return
    try:
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(text: str) -> None:
    """Write a line for people."""
    print(text, file=sys.stderr)


def stop(code: int) -> None:
    """End the command with an exit code."""
    if code:
        raise typer.Exit(code)
