"""The probe's report for a terminal. Every symbol comes with a word, so that nothing depends on colour."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from rich.console import Console
from rich.markup import escape

from ...probes.models.template_info import Failure
from ...probes.placements.findings import where_text
from ...probes.placements.mid_system import PlacementReport
from ...probes.placements.placements import AFTER, EVERY_END, FOLLOWS, destination
from ...probes.placements.report import ProbeReport
from ...probes.placements.server_detection import PASSING, ServerReport
from ...probes.placements.verdicts import RANKS, Verdict
from ...probes.text import settings_text, written
from .findings_text import add_count_columns, counts, draw_findings
from .tables import titled

_WORDS: dict[Verdict, tuple[str, str, str]] = {
    "in-place": ("✓ in place", "green", "written at its own place; the prompt before it does not change"),
    "unstable": ("~ unstable", "yellow", "written at its own place, but the prompt before it changes"),
    "moved": (
        "↷ moved",
        "yellow",
        "written {where}, not at its own place: everything from there on is computed again",
    ),
    "duplicated": ("² twice", "yellow", "written more than once"),
    "raises": ("✗ error", "red", "the template raises an error, and the request fails"),
    "dropped": ("∅ lost", "red", "left out without an error: the model never sees it"),
    "not-evaluated": (
        "? not tested",
        "dim",
        "unknown: the conversation before it does not render, or its texts are missing",
    ),
}
_HEADLINES: dict[Verdict, str] = {
    "in-place": "writes every system turn at its own place and changes nothing before it",
    "unstable": "writes every system turn at its own place, but changes the prompt before it",
    "moved": "moves a system turn that is not first: it is written {where}, and each new one changes the "
    "prompt from there on",
    "duplicated": "writes a system turn that is not first more than once",
    "raises": "fails with an error when a system turn is not first",
    "dropped": "leaves out a system turn that is not first, without an error: the model never sees it",
    "not-evaluated": "does not render the test conversations, or writes none of their messages",
}
_LEADING = {None: "", True: ", with a leading system message", False: ", without a leading system message"}
_SHAPES = {
    "two-in-a-row": "two system turns in a row",
    "two-runs": "an earlier such turn in the conversation",
    "between-results": "two tool results around it",
    "parallel-calls": "parallel tool calls before it",
    "two-leading": "a leading system and a leading developer message",
}
_DECIDES = {
    "inline": "leaves it in place",
    "note": "writes it as a note",
    "hoist": "moves it to the front",
}
_HISTORY = {
    "keeps": "is kept",
    "tool-loop-only": "is kept within a tool loop and left out after the next user turn",
    "drops": "is left out after the next user turn",
    "never": "is never written",
    "not-evaluated": "could not be tested",
}


def draw(report: ProbeReport, console: Console) -> None:
    """Print the report on one template."""
    kwargs = f", with {settings_text(report.kwargs)}" if report.kwargs else ""
    console.print(f"[bold]{escape(report.template.source)}[/bold]{escape(kwargs)}", soft_wrap=True)
    console.print(_headline(report.placements))
    console.print()
    _draw_placements(report.placements, console)
    _draw_servers(report.servers, console)
    _draw_thinking(report, console)
    draw_findings(report.findings, report.ignored, report.template.source, console)
    if report.findings:
        console.print("More about a finding: tplaudit explain RULE.", style="dim")


def draw_several(results: Sequence[ProbeReport | Failure], console: Console) -> None:
    """Print one row for each input: the worst verdict after each kind of turn, and the findings."""
    table = titled("A system turn in mid-conversation is …", "template")
    for heading in (*AFTER.values(), "earlier reasoning"):
        table.add_column(heading)
    add_count_columns(table)
    for result in results:
        if isinstance(result, Failure):
            table.add_row(escape(result.template.source), f"[red]{escape(result.error)}[/red]")
            continue
        rows = _usual(result.placements, "system")
        table.add_row(
            escape(result.template.source),
            *(_word(_worst([row for row in rows if row.preceding == preceding])) for preceding in AFTER),
            _HISTORY[result.thinking.history],
            *counts(result.findings),
        )
    console.print(table)


def draw_placement(shown: Mapping[str, Any], console: Console) -> None:
    """Print one placement with its conversation and prompts, to be attached to a bug report."""
    verdict: Verdict = shown["verdict"]
    template = shown["template"]
    lines = [
        f"template   {template['source']} (sha256 {template['sha256']})",
        f"placement  {shown['preceding']}/{shown['placement']}: a {shown['role']} turn "
        f"{AFTER[shown['preceding']]}",
        f"kwargs     {json.dumps(shown['kwargs'], ensure_ascii=False)}",
        f"verdict    {verdict}: {_WORDS[verdict][2].format(where=destination([shown['moved_to']]))}",
        f"line       {shown['line'] or 'unknown'}",
    ]
    if shown["error"]:
        lines.append(f"error      {shown['error']}")
    pointers = {index: "   <- the system turn in question" for index in shown["run"]}
    lines += ["", "messages"]
    lines += [
        f"  {json.dumps(message, ensure_ascii=False)}{pointers.get(index, '')}"
        for index, message in enumerate(shown["messages"])
    ]
    if shown["request_tools"] is not None:
        lines += ["", "tools", f"  {json.dumps(shown['request_tools'], ensure_ascii=False)}"]
    titles = {"prompt_before": "prompt of the messages before it", "prompt_with": "prompt with it"}
    for name, title in titles.items():
        text = "(none: the template raised)" if shown[name] is None else shown[name]
        lines += ["", title, *(f"  | {line}" for line in text.split("\n"))]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _draw_placements(placements: Sequence[PlacementReport], console: Console) -> None:
    rows = _usual(placements, "system")
    where = destination(row.moved_to for row in rows)
    table = titled("A system turn (a message of role system) in mid-conversation is …")
    table.add_column("")
    for heading in (FOLLOWS[name] for name in EVERY_END):
        table.add_column(heading)
    verdicts = {(_where(row)[:2], row.leading, row.tools): row.verdict for row in rows}
    same = all(verdicts[place, not leading, tools] == it for (place, leading, tools), it in verdicts.items())
    for (preceding, label), leading in product(AFTER.items(), (None,) if same else (True, False)):
        mine = [row for row in rows if row.preceding == preceding and leading in (None, row.leading)]
        cells = ([row for row in mine if row.placement == placement] for placement in EVERY_END)
        table.add_row(label + _LEADING[leading], *(_cell(cell) for cell in cells))
    console.print(table)
    for verdict in (verdict for verdict in _WORDS if any(row.verdict == verdict for row in rows)):
        console.print(f"  {_word(verdict)}: {_WORDS[verdict][2].format(where=where)}.")
    for line in _exceptions(placements):
        console.print(f"  {line}")
    console.print()


def _headline(placements: Sequence[PlacementReport]) -> str:
    rows = _usual(placements, "system")
    verdicts = {row.verdict for row in rows} - {"not-evaluated"} or {"not-evaluated"}
    if len(verdicts) == 1:
        where = destination(row.moved_to for row in rows)
        return f"This template {_HEADLINES[verdicts.pop()].format(where=where)}."
    return "What this template does with a system turn that is not first depends on its place:"


def _cell(rows: Sequence[PlacementReport]) -> str:
    """Write the verdict of some placements; where they differ, the worst one and when it applies."""
    worst = _worst(rows)
    verdicts = {row.verdict for row in rows}
    if len(verdicts) == 1:
        return _word(worst)
    mine = [row for row in rows if row.verdict == worst]
    others = [row for row in rows if row.verdict != worst]
    for text, holds in (
        ("with tools", lambda row: row.tools),
        ("without tools", lambda row: not row.tools),
    ):
        if all(map(holds, mine)) and not any(map(holds, others)):
            return f"{_word(worst)} {text}; else {_word(_worst(others))}"
    return f"{_word(worst)} in {len(mine)} of {len(rows)} cases"


def _exceptions(placements: Sequence[PlacementReport]) -> Iterator[str]:
    """Say where developer turns, other shapes, other switches and raw messages have another verdict."""
    system = {_where(row): row.verdict for row in _usual(placements, "system")}
    developer = [row for row in _usual(placements, "developer") if row.verdict != system[_where(row)]]
    if not developer:
        yield "With role developer it is the same."
    for verdict, rows in _grouped(developer).items():
        yield f"With role developer it is {_word(verdict)} {where_text(rows)}."
    differing: dict[tuple[str, Verdict], list[PlacementReport]] = {}
    for row in placements:
        plain = system.get(_where(row))
        expected = {"raises": ("raises", "not-evaluated")}.get(plain or "", (plain,))
        if (
            row.shape != "plain"
            and row.verdict not in expected
            and not (plain is None and row.verdict in system.values())
        ):
            differing.setdefault((row.shape, row.verdict), []).append(row)
    for (shape, verdict), rows in differing.items():
        yield f"With {_SHAPES[shape]} it is {_word(verdict)} {where_text(rows)}."
    variants = [row for row in placements if not row.unswitched]
    changed: dict[str, list[PlacementReport]] = {}
    for row in variants:
        changed.setdefault(settings_text(row.kwargs) or "messages passed on as given", []).append(row)
    for setting, rows in changed.items():
        for verdict, same in _grouped(rows).items():
            yield f"With {escape(setting)} it is {_word(verdict)} {where_text(same)}."


def _draw_servers(servers: Sequence[ServerReport], console: Console) -> None:
    table = titled("What servers do with it (names as for --policy)")
    for heading in ("server", "what it does", "effect", "why"):
        table.add_column(heading)
    same: dict[tuple[str, str, str], list[str]] = {}
    for server in servers:
        does = "passes it on" if server.name in PASSING else _does(server)
        same.setdefault((does, server.consequence, server.why), []).append(server.policy)
    for cells, names in same.items():
        table.add_row(escape(", ".join(names)), *map(escape, cells))
    console.print(table)
    console.print()


def _does(server: ServerReport) -> str:
    """Say what a server that tests the template decides, for the placements that it tests."""
    return " or ".join(text for decision, text in _DECIDES.items() if decision in server.at.values())


def _draw_thinking(report: ProbeReport, console: Console) -> None:
    thinking = report.thinking
    console.print("[bold]Reasoning of earlier turns[/bold]")
    knob = (
        f"; the variable {thinking.knob.name}={written(thinking.knob.value)} keeps it"
        if thinking.knob
        else ""
    )
    console.print(f"  It {_HISTORY[thinking.history]}{escape(knob)}. More: tplaudit thinking.")
    prompt = thinking.generation_prompt
    if prompt.text:
        stays = {
            True: "later requests have it before that reply as well",
            False: "later requests do not have it before that reply, so the reply is computed again",
            None: "whether later requests have it before that reply could not be tested",
        }[prompt.persists]
        console.print(f"  The model writes its reply after {escape(repr(prompt.text))}; {stays}.")
    console.print()


def _usual(placements: Sequence[PlacementReport], role: str) -> list[PlacementReport]:
    return [row for row in placements if row.role == role and row.usual]


def _where(row: PlacementReport) -> tuple[str, str, bool, bool]:
    return (row.preceding, row.placement, row.leading, row.tools)


def _grouped(rows: Sequence[PlacementReport]) -> dict[Verdict, list[PlacementReport]]:
    groups: dict[Verdict, list[PlacementReport]] = {}
    for row in rows:
        groups.setdefault(row.verdict, []).append(row)
    return groups


def _worst(rows: Sequence[PlacementReport]) -> Verdict:
    """Return the worst verdict; `not-evaluated` only where nothing was."""
    evaluated = [row.verdict for row in rows if row.verdict in RANKS]
    return max(evaluated, key=lambda verdict: RANKS[verdict]) if evaluated else "not-evaluated"


def _word(verdict: Verdict) -> str:
    words, colour, _ = _WORDS[verdict]
    return f"[{colour}]{words}[/{colour}]"
