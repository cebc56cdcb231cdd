"""Where output goes: data to stdout or a file, words for people to stderr."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..probes.errors import UsageError
from .formats.visible import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

#: Width of tables that are not shown on a terminal, in columns.
PIPED_WIDTH = 160


def json_text(document: Any) -> str:
    """Return a JSON document as every output has it: indented, with its characters as they are."""
    import msgspec

    short = json.dumps(document, ensure_ascii=False)
    try:
        return msgspec.json.format(short, indent=2) + "\n"  # three times as fast as json's own indenting
    except UnicodeEncodeError:  # half a surrogate pair
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def write_json(document: Any, output: Path | None) -> None:
    """Write one JSON document."""
    write_text(json_text(document), output)


def write_rich(draw: Callable[[Console], None], output: Path | None) -> None:
    """Write what `draw` prints on a console: with colours on a terminal, as plain text elsewhere."""
    from .console import SafeConsole

    terminal = output is None and sys.stdout.isatty()
    if terminal:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # lone surrogates
        draw(SafeConsole())
        return
    console = SafeConsole(
        file=io.StringIO(),
        record=True,
        width=PIPED_WIDTH,
        force_terminal=False,
        color_system=None,
    )
    draw(console)
    text = console.export_text()
    write_text("".join(f"{line.rstrip()}\n" for line in text.removesuffix("\n").split("\n")), output)


def write_text(text: str, output: Path | None, option: str = "--output") -> None:
    """Write a text as it is, to a file, which `option` named, or to stdout."""
    if output is not None:
        try:
            output.write_text(text, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise UsageError(
                (error.strerror or "cannot be written").lower(),
                where=str(output),
                fix=f"give another {option}",
            ) from None
        return
    try:
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has read enough
        discard_stdout()


def discard_stdout() -> None:
    """Let nothing more be written to stdout, which is closed or full, not even at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def check_output(output: Path | None, inputs: Sequence[str | None] = (), option: str = "--output") -> None:
    """Check before the work that its result can be written.

    Args:
        output: the file.
        inputs: names of files that are read, and must not be overwritten.
        option: what named the file.

    Raises:
        UsageError: it cannot.
    """
    if output is None:
        return
    folder = output.parent
    if output.is_dir():
        what = "it is a folder"
    elif not folder.is_dir():
        what = f"there is no folder {str(folder)!r}"
    elif not os.access(output if output.exists() else folder, os.W_OK):
        what = "permission denied"
    elif output.exists() and any(_reads(Path(name), output) for name in inputs if name):
        what = "it would overwrite what is read"
    else:
        return
    raise UsageError(what, where=str(output), fix=f"give another {option}")


def _reads(source: Path, output: Path) -> bool:
    """Return whether an existing file is a source, or is in one that is a folder."""
    return source.exists() and (
        output.samefile(source) or (source.is_dir() and source.samefile(output.parent))
    )


def progress(text: str) -> Status:
    """Return a line on stderr that moves while something is done, and is gone then."""
    from rich.console import Console

    return Console(stderr=True).status(text, spinner="dots")


def say(text: str) -> None:
    """Write a line for people."""
    if sys.stderr is not None:
        print(one_line(text), file=sys.stderr)


def one_line(text: str) -> str:
    """Return a text as one line in which nothing steers a terminal."""
    return visible(" ".join(text.splitlines()))


def stop(code: int) -> None:
    """End the command with an exit code."""
    if code:
        raise typer.Exit(code)
