"""The gate's output formats by name, and where each goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ....probes.errors import UsageError
from ...output import check_output, json_text

if TYPE_CHECKING:
    from rich.console import Console

    from ....probes.gate.report import GateReport

WriteText = Callable[[str, Path | None], None]
WriteRich = Callable[["Callable[[Console], None]", Path | None], None]

TEXT = "text"
#: Formats of which only one can go to stdout, and nothing else with it.
DOCUMENTS = ("json", "sarif", "junit")
NAMES = (TEXT, "json", "markdown", "sarif", "junit", "github")


@dataclass(frozen=True, slots=True)
class Outputs:
    """Pairs of a format's name and a file, or None for stdout."""

    pairs: tuple[tuple[str, Path | None], ...]

    def write(self, reports: Sequence[GateReport], write_text: WriteText, write_rich: WriteRich) -> None:
        """Write the reports in every format."""
        for name, path in self.pairs:
            if name == TEXT:
                from .text import draw

                write_rich(lambda console: draw(reports, console), path)
            else:
                write_text(_formatter(name)(reports), path)

    def check(self, inputs: Sequence[str]) -> None:
        """See before the work whether every file can be written.

        Args:
            inputs: names of files that are read, and must not be overwritten.

        Raises:
            UsageError: one cannot be written, or would be written twice.
        """
        paths = [path.resolve() for _, path in self.pairs if path is not None]
        for _, path in self.pairs:
            check_output(path, inputs, "file")
            if path is not None and paths.count(path.resolve()) > 1 and not path.is_char_device():
                raise UsageError(
                    "two formats cannot share one file", where=str(path), fix="give each a file of its own"
                )


def read_outputs(items: Sequence[str] | None, as_json: bool, output: Path | None) -> Outputs:
    """Read `NAME[=FILE]` items; text goes to stdout unless another format does.

    Raises:
        UsageError: there is no such format, or stdout would get more than one document.
    """
    pairs: list[tuple[str, Path | None]] = []
    for item in (*(items or ()), *(("json",) if as_json else ())):
        name, equals, file = item.partition("=")
        if name not in NAMES or bool(equals) != bool(file):
            raise UsageError(
                f"{item!r} is no format", where="--format", fix=f"write {', '.join(NAMES)}, or NAME=FILE"
            )
        pairs.append((name, Path(file) if file else None))
    if all(path is not None for _, path in pairs):
        pairs.append((TEXT, None))
    shown = [name for name, path in pairs if path is None]
    if len(shown) > 1 and (output is not None or any(name in DOCUMENTS for name in shown)):
        raise UsageError(
            f"{' and '.join(shown)} cannot share one output", where="--format", fix="write NAME=FILE for one"
        )
    return Outputs(tuple((name, path or output) for name, path in pairs))


def _formatter(name: str) -> Callable[[Sequence[GateReport]], str]:
    match name:
        case "json":
            from ....probes.gate.report import document

            return lambda reports: json_text(document(reports))
        case "markdown":
            from .markdown import markdown as formatter
        case "sarif":
            from .sarif import sarif_text as formatter
        case "junit":
            from .junit import junit_text as formatter
        case _:
            from .github import github_text as formatter
    return formatter
