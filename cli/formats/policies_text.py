"""The policies for a terminal: a list, or all about one."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.markdown import Markdown
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ...probes.policies.kind import Evidence, PolicyKind, PolicyOption
from ...probes.policies.registry import POLICIES

_EVIDENCE: dict[Evidence, str] = {
    "run": "the server's own functions were run and give the same result",
    "read": "the server's source was read",
    "reported": "known from reports only",
    "inferred": "taken over from a related server, and not compared",
}


def draw(console: Console) -> None:
    """Print the policies as a table, and what the kinds of evidence mean."""
    table = Table(pad_edge=False)
    table.add_column("policy", no_wrap=True)
    table.add_column("what it does; its options", ratio=3)
    table.add_column("known from", ratio=2, overflow="fold")
    table.add_column("cache", no_wrap=True)
    for kind in POLICIES.values():
        options = f"\n[dim]{', '.join(kind.options)}[/dim]" if kind.options else ""
        known = f"{escape(kind.source)}\n[dim]{kind.date}, {_known(kind)}[/dim]"
        table.add_row(kind.name, escape(kind.summary) + options, known, kind.cache)
    console.print(table)
    for evidence, meaning in _EVIDENCE.items():
        console.print(f"  {evidence}: {meaning}.", highlight=False)
    hint = "Options' values and a worked example of one policy: tplaudit policies NAME."
    console.print(hint, style="dim", highlight=False)


def draw_one(kind: PolicyKind, page: str, console: Console) -> None:
    """Print what is known about a policy, then its page."""
    console.print(Text(kind.name, "bold"))
    console.print(Text(f"{kind.summary}."), soft_wrap=True)
    console.print()
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for title, fact in _facts(kind):
        table.add_row(title, escape(fact))
    console.print(table)
    console.print()
    if console.is_terminal:
        console.print(Markdown(page, code_theme="ansi_dark"))
    else:
        console.print(page, end="", markup=False, highlight=False, soft_wrap=True)


def _facts(kind: PolicyKind) -> Iterator[tuple[str, str]]:
    yield "source", kind.source
    yield "date", kind.date
    for part, evidence in kind.evidence.items():
        yield "evidence", f"{part}: {evidence}, {_EVIDENCE[evidence]}"
    yield "cache", kind.cache
    for name, option in kind.options.items():
        yield "option", f"{name}={option.choices}; default: {_default(option)}"
    yield "between requests", f"{kind.drift[:1].upper()}{kind.drift[1:].removesuffix('.')}."


def _known(kind: PolicyKind) -> str:
    """Return how well a policy's rules are known: in one word, or part by part."""
    if len(set(kind.evidence.values())) == 1:
        return kind.main_evidence
    return ", ".join(f"{evidence} ({part})" for part, evidence in kind.evidence.items())


def _default(option: PolicyOption) -> str:
    return option.default or option.otherwise
