"""The gate's report as Markdown, for a pull request's comment or a job's summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ....probes.gate.report import Change, GateReport
from ....probes.gate.rules import GATE_RULES
from ..visible import visible
from .words import advice, advice_for_all, compared, facts, head_text, headline, limit_text, number

_MARKS = {"regressed": "❌ regressed", "changed": "⚠️ changed", "fixed": "✅ fixed", "cosmetic": "💄 cosmetic"}


def markdown(reports: Sequence[GateReport]) -> str:
    """Return the Markdown text."""
    return visible("\n".join(line for report in reports for line in _report(report)) + "\n")


def _report(report: GateReport) -> Iterator[str]:
    mark = "✅ pass" if report.verdict == "pass" else "❌ fail"
    yield f"## Chat template gate: {mark}"
    yield ""
    yield f"{_code(report.base.source)} → {_code(report.head.source)}: {headline(report)}."
    yield ""
    if report.changes:
        yield "| change | rule | line | what |"
        yield "| --- | --- | --- | --- |"
        for change in report.changes:
            accepted = f" *Accepted: {_plain(change.accepted)}.*" if change.accepted else ""
            cells = (_MARKS[change.kind], f"`{change.rule}`", str(change.line or ""), _plain(change.message))
            yield f"| {' | '.join(cells)}.{accepted} |"
        yield ""
    for change in report.changes:
        yield from _details(change, report)
    if report.budgets:
        yield "| budget | transcript | policy | base | head | limit | |"
        yield "| --- | --- | --- | ---: | ---: | ---: | --- |"
        for each in report.budgets:
            kept = "✅" if each.passed else f"{'☑️ accepted' if each.accepted else '❌'} {_plain(each.reason)}"
            numbers = (number(each.base), head_text(each), limit_text(each))
            names = (each.name, _plain(each.transcript), _plain(each.policy))
            yield f"| {' | '.join((*names, *numbers, kept))} |"
        yield ""
    together = advice_for_all(report)
    if together is not None:
        words, _, options = together.partition(": ")
        yield f"{words}: {_code(options)}"
        yield ""
    for text in (*report.warnings, *facts(report)):
        yield f"> {_plain(text)}."
        yield ""
    yield f"<sub>{compared(report)}, tplaudit {report.tplaudit}</sub>"
    yield ""


def _details(change: Change, report: GateReport) -> Iterator[str]:
    meant = advice(change, report)
    if not change.diff and not meant and (change.severity is None or change.accepted):
        return
    yield f"<details><summary>{change.kind} <code>{change.rule}</code>: {_plain(change.where)}</summary>"
    yield ""
    if change.diff:
        fence = "```" if not any("```" in line for line in change.diff) else "~~~~~"
        yield from (f"{fence}diff", *change.diff, fence)
        yield ""
    if meant:
        yield f"If this is meant: {_code(meant)}"
    elif change.kind == "regressed" and not change.accepted:
        yield f"{_plain(GATE_RULES[change.rule].help)}."
    yield ""
    yield f"Conversations and placements: {', '.join(_code(str(subject)) for subject in change.subjects)}"
    yield ""
    yield "</details>"
    yield ""


def _code(text: str) -> str:
    ticks = "``" if "`" in text else "`"
    return f"{ticks}{text}{ticks}"


def _plain(text: str) -> str:
    """Escape what Markdown and HTML would take for markup within a line or a table."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for mark in "\\`*_[]|#":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split("\n"))
