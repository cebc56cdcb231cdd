"""Unified diffs of prompts: coloured for a terminal, or exactly as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from ...probes.attribution.prompt_diff import PromptDiff
from ...probes.attribution.render_report import RenderReport
from .visible import visible

_STYLES = (("---", "bold"), ("+++", "bold"), ("@@", "cyan"), ("-", "red"), ("+", "green"), ("\\", "dim"))


def plain(reports: Sequence[RenderReport]) -> str:
    """Return the diffs as text, each exactly as it is."""
    return "".join(
        text if diff is not None and diff.unified else f"{text}\n" for diff, text in _entries(reports)
    )


def draw(reports: Sequence[RenderReport], console: Console) -> None:
    """Print the diffs with colours."""
    for diff, text in _entries(reports):
        if diff is not None and diff.unified:
            draw_unified(text, console)
        else:
            console.print(Text(visible(text), "bold"), soft_wrap=True)


def draw_unified(text: str, console: Console) -> None:
    """Print a unified diff with colours; control characters are shown as pictures."""
    for line in visible(text).removesuffix("\n").split("\n"):
        style = next((style for start, style in _STYLES if line.startswith(start)), "")
        console.print(Text(line, style), soft_wrap=True)


def _entries(reports: Sequence[RenderReport]) -> Iterator[tuple[PromptDiff | None, str]]:
    for report in reports:
        if len(reports) > 1:
            yield None, report.template
        if report.error:
            yield None, report.error
        for diff in report.diffs:
            yield diff, diff.unified or _sentence(diff)


def _sentence(diff: PromptDiff) -> str:
    if diff.same:
        return f"{diff.before} and {diff.after} give the same prompt ({diff.shared_chars:,} characters)."
    failed = (f"{side} gave no prompt: {side.error}" for side in (diff.before, diff.after) if side.error)
    return "\n".join(dict.fromkeys(failed))
