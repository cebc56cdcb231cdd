"""The conversations of a replay for a terminal: a table for each that diverges, a line for each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ...probes.replay.replay_report import ConversationReport, PolicyReport, Totals, TurnReport


class TurnTable(Protocol):
    """Makes a table of turns with their sums."""

    def __call__(self, title: str, turns: Sequence[TurnReport], totals: Totals) -> Table:
        """Return the table."""
        ...


def draw_conversations(
    policy: PolicyReport, table: TurnTable, console: Console, only: int | None = None
) -> None:
    """Print a policy's turns by conversations, and the sums."""
    title = f"policy {policy.policy}"
    if len(policy.conversations) < 2:
        console.print(table(title, policy.turns, policy.totals))
        return
    for each in policy.conversations:
        if only not in (None, each.conversation):
            continue
        turns = [turn for turn in policy.turns if turn.conversation == each.conversation]
        if only is not None or any(turn.divergence or turn.error or turn.avoidable for turn in turns):
            console.print(table(f"{title}, {each.shown}", turns, each.totals))
        else:
            console.print(escape(f"{title}, {_in_a_line(each)}"), soft_wrap=True)
    if only is None:
        console.print(_sums(policy))


def _in_a_line(each: ConversationReport) -> str:
    totals = each.totals
    turns = f"turn {each.turns[0]}"
    if len(each.turns) > 1:
        turns = f"{len(each.turns)} turns, {each.turns[0]} to {each.turns[-1]}"
    return (
        f"{each.shown} ({turns}): no prompt diverges; {totals.reused:,} of {totals.prompt_tokens:,} tokens "
        f"reused, {totals.reprefill:,} prefilled."
    )


def _sums(policy: PolicyReport) -> Table:
    table = Table(
        title=escape(f"policy {policy.policy}, conversations"),
        title_justify="left",
        title_style="bold",
        pad_edge=False,
    )
    table.add_column("conversation", overflow="fold")
    names = ("turns", "raised", "prompt", "reused", "re-prefill", "unavoidable", "avoidable")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for each in policy.conversations:
        name = (
            f"{each.conversation}{f' {each.name}' if each.name else ''}{' (a guess)' if each.guessed else ''}"
        )
        table.add_row(escape(name), *_numbers(len(each.turns), each.totals))
    table.add_section()
    table.add_row("all", *_numbers(len(policy.turns), policy.totals), style="bold")
    return table


def _numbers(turns: int, totals: Totals) -> list[str]:
    counts = (
        turns,
        totals.failed,
        totals.prompt_tokens,
        totals.reused,
        totals.reprefill,
        totals.unavoidable,
        totals.avoidable,
    )
    return [f"{count:,}" for count in counts]
