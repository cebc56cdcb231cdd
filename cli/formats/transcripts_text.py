"""A recording's conversations for a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ...probes.transcripts.grouping.listing import ListedConversation, TranscriptListing

_FORMATS = {
    "requests_jsonl": "one request on each line",
    "requests_json": "a JSON document of requests",
    "messages_jsonl": "one message on each line",
}
_APIS = {
    "openai-chat": "OpenAI chat completions",
    "anthropic-messages": "Anthropic Messages",
    "openai-responses": "OpenAI Responses",
}
#: Tools that are named; more are counted.
_SHOWN = 4


def draw(listing: TranscriptListing, console: Console) -> None:
    """Print what was recognised, and the conversations as a table."""
    console.print(escape(_recognised(listing)), soft_wrap=True)
    table = Table(pad_edge=False)
    for name in ("", "conversation"):
        table.add_column(name, no_wrap=True, justify="left" if name else "right")
    for name in ("requests", "turns", "messages", "appended", "edited", "branch"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("tools", overflow="fold")
    table.add_column("model", overflow="fold")
    table.add_column("from", no_wrap=True)
    table.add_column("to", no_wrap=True)
    for each in listing.conversations:
        table.add_row(*map(escape, _row(each)))
    console.print(table)
    edited = [str(turn.turn) for turn in listing.turns if turn.relation == "edited"]
    if edited:
        console.print(f"The client changed what it had sent before in turn {', '.join(edited)}.")
    for what, words in (("tools", "tool list"), ("system", "system text")):
        turns = [str(turn.turn) for turn in listing.turns if what in turn.changed]
        if turns:
            console.print(f"The {words} changed in turn {', '.join(turns)}.")
    if not listing.complete:
        console.print(escape(f"Incomplete: {listing.error}."), style="bold")


def _recognised(listing: TranscriptListing) -> str:
    agent = listing.agent
    known = "unknown" if agent is None else f"{agent.name}{' (a guess)' if agent.guessed else ''}"
    form = _FORMATS.get(listing.format, listing.format)
    requests = "1 request" if listing.requests == 1 else f"{listing.requests} requests"
    return (
        f"{listing.transcript}: {requests}, {len(listing.conversations)} conversation"
        f"{'' if len(listing.conversations) == 1 else 's'}; {form}; API: {_APIS[listing.dialect]}; "
        f"agent: {known}."
    )


def _row(each: ListedConversation) -> list[str]:
    turns = str(each.first_turn)
    if each.last_turn != each.first_turn:
        turns = f"{turns}-{each.last_turn}"
    name = each.name or ""
    return [
        str(each.conversation),
        f"{name} (a guess)" if name and each.guessed else name,
        str(each.requests),
        turns,
        str(each.messages),
        *(str(each.relations[relation]) for relation in ("appended", "edited", "branch")),
        _tools(each.tools),
        ", ".join(each.models),
        _time(each.first_sent),
        _time(each.last_sent),
    ]


def _tools(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_SHOWN])
    more = len(names) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _time(sent: str | None) -> str:
    """Return a time without its fractions and zone, which the JSON has."""
    return sent[:19].replace("T", " ") if sent else ""
