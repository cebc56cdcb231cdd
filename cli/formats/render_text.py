"""One rendered turn for a terminal: a table of the policies, then each different result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ...probes.attribution.prompt_diff import unified
from ...probes.attribution.render_report import RenderReport
from ...probes.attribution.rendered import Rendered, RenderedTurn
from ...probes.attribution.system_turn_outcomes import Outcome
from ...probes.policies.api.routes import route_of
from ...probes.policies.registry import Action, kind_of, read_spec
from ...probes.templates.llamacpp import EngineComparison
from .diff_text import draw_unified
from .messages_text import draw_messages
from .prompt_text import draw_prompt
from .visible import listed, one_line, visible

_WORDS: dict[Outcome, tuple[str, str, str]] = {
    "kept": ("✓ in place", "green", "the system turn stays at its own place"),
    "moved": ("↷ moved", "yellow", "the server leaves it in place, but the template writes it further up"),
    "noted": ("✎ noted", "cyan", "it becomes a note in a user turn or a tool result, or a user turn"),
    "relocated": ("→ relocated", "cyan", "its text goes into a turn of another role"),
    "hoisted": (
        "↥ hoisted",
        "yellow",
        "it goes into the first system message; each new one changes everything after that",
    ),
    "dropped": ("∅ dropped", "magenta", "the server leaves it out"),
    "lost": ("∅ lost", "red", "the template leaves it out without an error: the model never sees it"),
}
_ERROR = ("✗ fails", "red", "there is no prompt, and the request fails")
_NOTHING = ("· nothing", "dim", "there is no system turn that is not first")
#: The order of rows: what changes least first.
_ORDER = {outcome: rank for rank, outcome in enumerate(_WORDS)}
#: Outcomes up to which each is shown in full, and characters of an error that the table shows.
_FEW, _ERROR_SHOWN = 2, 160


def draw(reports: Sequence[RenderReport], console: Console, *, full: bool = False) -> None:
    """Print the last turn of each report: a table, and each outcome where they are few or `full`."""
    for report in reports:
        _draw_report(report, console, full)


def _draw_report(report: RenderReport, console: Console, full: bool) -> None:
    if report.error is not None:
        _say(console, f"[bold]{escape(report.template)}[/bold]: [red]{escape(report.error)}[/red]")
        console.print()
        return
    turn = report.turns[-1]
    _draw_head(report, turn, console)
    rows = sorted(_grouped(turn.policies, _outcome), key=lambda same: _rank(same[0]))
    console.print(_table(rows))
    for words, colour, meaning in dict.fromkeys(word for same in rows for word in _words(same[0])):
        _say(console, f"  [{colour}]{words}[/{colour}]: {meaning}.")
    console.print()
    details = [same for row in rows for same in _grouped(row, _way)]
    if not full and len(details) > _FEW:
        _say(
            console,
            "For messages and prompt add --policy NAME or --full; to compare two policies add --diff.",
            style="dim",
        )
        return
    shown: dict[str, str] = {}
    for same in details:
        _draw_details(report, same, shown, console, full)
    _say(
        console,
        "Numbers are indices of the client's messages, from 0. In front of a prompt's line they say whose "
        "text is in it. Texts are found as strings; equal ones are assigned in order.",
        style="dim",
    )


def _draw_head(report: RenderReport, turn: RenderedTurn, console: Console) -> None:
    request = turn.request
    tools = f", {_count(len(request.tools), 'tool')}" if request.tools else ""
    title = f"[bold]Turn {turn.turn} of {escape(report.transcript)}[/bold]"
    _say(
        console,
        f"{title}: {_count(len(request.messages), 'message')}{tools}; template {escape(report.template)}",
    )
    later = [each.message for each in turn.policies[0].system_turns if not each.leading]
    _say(console, f"System turns that are not first: {listed(later, 20) or 'none'}")
    routes = _routes(turn)
    if len(routes) == 1:
        (route,) = routes
        own = route == route_of(None, request)
        whose = " (the request's own; choose another with --policy NAME:route=…)" if own else ""
        _say(console, f"Route: {route}{whose}")
    elif routes:
        each = "; ".join(f"{route} for {', '.join(names)}" for route, names in routes.items())
        _say(console, f"Routes: {escape(each)}")
    console.print()


def _routes(turn: RenderedTurn) -> dict[str, list[str]]:
    """Return the servers' HTTP routes that count, each with the policies for which it does."""
    routes: dict[str, list[str]] = {}
    for each in turn.policies:
        kind = kind_of(each.policy)
        if kind and "route" in kind.options and "messages" in kind.options["route"].values:
            _, given = read_spec(each.policy)
            routes.setdefault(route_of(given.get("route"), turn.request), []).append(each.policy)
    return routes


def _grouped(policies: Sequence[Rendered], key: Callable[[Rendered], Any]) -> list[list[Rendered]]:
    """Group policies by their result, in the order of the first of each group."""
    groups: list[list[Rendered]] = []
    for each in policies:
        same = next((group for group in groups if key(group[0]) == key(each)), None)
        if same is None:
            groups.append([each])
        else:
            same.append(each)
    return groups


def _outcome(rendered: Rendered) -> Any:
    return rendered.prompt, rendered.error, rendered.system_turns, rendered.text_missing_of, rendered.llamacpp


def _way(rendered: Rendered) -> Any:
    return rendered.messages, rendered.prepared.actions


def _table(rows: Sequence[Sequence[Rendered]]) -> Table:
    compared = any(same[0].llamacpp for same in rows)
    table = Table(pad_edge=False)
    table.add_column("system turns", no_wrap=True)
    table.add_column("policies")
    table.add_column("characters", justify="right", no_wrap=True)
    counted = any(each.tokens is not None for same in rows for each in same)
    if counted:
        table.add_column("tokens", justify="right", no_wrap=True)
    if compared:
        table.add_column("llama.cpp's engine")
    previous = None
    for same in rows:
        first = same[0]
        verdict = _verdict(first)
        if previous is not None and verdict != previous:
            table.add_section()
        table.add_row(
            "" if verdict == previous else verdict,
            "\n".join([escape(", ".join(each.policy for each in same)), *_remarks(same)]),
            _number(first.chars),
            *([_number(first.tokens)] if counted else []),
            *([_engine(first.llamacpp)] if compared else []),
        )
        previous = verdict
    return table


def _verdict(rendered: Rendered) -> str:
    """Say what became of the later system turns, and of which ones where they differ."""
    later = [each for each in rendered.system_turns if not each.leading]
    words = _words(rendered)
    if rendered.error is not None or not later or len(words) == 1:
        return "\n".join(f"[{colour}]{word}[/{colour}]" for word, colour, _ in words)
    lines = []
    for outcome in sorted({each.outcome for each in later}, key=_ORDER.__getitem__):
        word, colour, _ = _WORDS[outcome]
        which = listed([each.message for each in later if each.outcome == outcome], 4)
        lines.append(f"[{colour}]{word}[/{colour}] {which}")
    return "\n".join(lines)


def _words(rendered: Rendered) -> list[tuple[str, str, str]]:
    """Return the words for what became of the request's later system turns, or of the request."""
    if rendered.error is not None:
        return [_ERROR]
    outcomes = {each.outcome for each in rendered.system_turns if not each.leading}
    return [_WORDS[outcome] for outcome in sorted(outcomes, key=_ORDER.__getitem__)] or [_NOTHING]


def _rank(rendered: Rendered) -> tuple[int, int]:
    """Sort by the worst outcome. One that the server dropped counts only where there is no other."""
    if rendered.error is not None:
        return len(_ORDER), 0
    outcomes = [each.outcome for each in rendered.system_turns if not each.leading]
    worst = max((_ORDER[outcome] for outcome in outcomes if outcome != "dropped"), default=_ORDER["dropped"])
    return (worst, outcomes.count("dropped")) if outcomes else (-1, 0)


def _remarks(same: Sequence[Rendered]) -> Iterator[str]:
    """Yield what else there is to say about policies with the same result."""
    first = same[0]
    if first.error is not None:
        yield f"[red]{escape(one_line(first.error, _ERROR_SHOWN))}[/red]"
    first_block = [each for each in first.system_turns if each.leading and each.outcome != "kept"]
    for outcome in dict.fromkeys(each.outcome for each in first_block):
        which = listed(each.message for each in first_block if each.outcome == outcome)
        yield f"first system text ({which}): {_WORDS[outcome][0]}"
    system = {each.message for each in first.system_turns}
    others = [index for index in first.text_missing_of or () if index not in system]
    if others:
        yield f"[red]∅ no text of {listed(others)} in the prompt[/red]"
    refused = {each.note_refused_at for each in same if each.note_refused_at is not None}
    if refused:
        who = ", ".join(each.policy for each in same if each.note_refused_at is not None)
        yield f"[dim]a note was refused at {listed(sorted(refused))}: {escape(who)}[/dim]"


def _engine(comparison: EngineComparison | None) -> str:
    if comparison is None:
        return ""
    if comparison.llamacpp is None:
        return f"[red]✗ fails[/red]: {escape(one_line(comparison.llamacpp_error or '', _ERROR_SHOWN))}"
    if comparison.transformers is None:
        return "[yellow]✓ renders[/yellow]"
    if comparison.difference is None:
        return "[green]✓ same[/green]"
    return f"[yellow]≠ from character {comparison.difference.offset:,} on[/yellow]"


def _draw_details(
    report: RenderReport, same: Sequence[Rendered], shown: dict[str, str], console: Console, full: bool
) -> None:
    """Print the messages before and after, what was done, and the prompt unless it was printed before."""
    first = same[0]
    names = ", ".join(each.policy for each in same)
    _say(console, f"── [bold]{escape(names)}[/bold] ──")
    _say(console, "[bold]Messages[/bold] (- the client sent, + the template gets, ~ in another form)")
    draw_messages(report.turns[-1].request, first.prepared.request.messages, console, full=full)
    console.print()
    _say(console, "[bold]What was done[/bold]" + ("" if first.prepared.actions else ": nothing"))
    for kind, why, which in _merged(first.prepared.actions):
        where = f" {listed(which, 1000 if full else 12)}" if which else ""
        console.print(Text(f"  {kind}{where}: {visible(why)}"), soft_wrap=True)
    console.print()
    if first.prompt is None:
        _say(console, f"[bold]Prompt[/bold]: none, [red]{escape(visible(first.error or ''))}[/red]")
    elif first.prompt in shown:
        _say(console, f"[bold]Prompt[/bold]: the same as under {escape(shown[first.prompt])}")
    else:
        shown[first.prompt] = first.policy
        tokens = "" if first.tokens is None else f", {first.tokens:,} tokens"
        _say(console, f"[bold]Prompt[/bold] ({len(first.prompt):,} characters{tokens})")
        draw_prompt(first.prompt, first.spans, report.special, console, full=full)
    if first.llamacpp is not None:
        _draw_engines(first.llamacpp, console)
    console.print()


def _merged(actions: Sequence[Action]) -> Iterator[tuple[str, str, list[int]]]:
    """Yield actions. Neighbours that differ only in their messages become one."""
    for (kind, why), group in groupby(actions, key=lambda action: (action.kind, action.why)):
        yield kind, why, [index for action in group for index in action.messages]


def _draw_engines(comparison: EngineComparison, console: Console) -> None:
    console.print()
    _say(console, f"[bold]{escape(comparison.engine)}[/bold]: {_engine(comparison)}")
    if comparison.transformers is not None and comparison.llamacpp is not None:
        difference = unified(comparison.transformers, comparison.llamacpp, "transformers", "llama.cpp")
        draw_unified(difference, console)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _say(console: Console, markup: str, style: str | None = None) -> None:
    """Print a line with nothing in it coloured but what is marked up."""
    console.print(markup, style=style, highlight=False, soft_wrap=True)
