"""One turn of a replay in full, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher

from rich.console import Console
from rich.text import Text

from ...probes.conversation import named_messages
from ...probes.replay.replay_report import (
    Divergence,
    MessageRef,
    Place,
    PolicyReport,
    Remedy,
    ReplayReport,
    TurnReport,
)
from .durations import duration

#: Characters of each text shown from the divergence point on, and before it.
SHOWN, BEFORE = 90, 40
#: Shortest stretch, in characters, from which two texts count as the same again.
_ALIKE = 8


def draw_turn(report: ReplayReport, number: int, console: Console) -> None:
    """Print a turn under each policy: both texts, owner, line, cause, evidence, chain, remedies."""
    for policy in report.policies:
        for turn in policy.turns:
            if turn.turn == number:
                console.print(Text(f"turn {number}, policy {policy.policy}", style="bold"))
                console.print(_field("belongs", _belongs(turn, policy)), soft_wrap=True)
                for line in _lines(turn, policy.server_cache.block_size):
                    console.print(line, soft_wrap=True)
                console.print()


def _belongs(turn: TurnReport, policy: PolicyReport) -> str:
    """Say which conversation a turn is of, and what it continues."""
    names = {each.conversation: each.shown for each in policy.conversations}
    how = {
        "begins": "which it begins",
        "appended": f"appended to turn {turn.predecessor}",
        "edited": f"turn {turn.predecessor} with something changed in it",
        "branch": f"a branch from turn {turn.predecessor}, which was continued otherwise before",
    }[turn.relation]
    return f"to {names.get(turn.conversation, turn.conversation)}: {how}"


def _lines(turn: TurnReport, block_size: int) -> Iterator[Text]:
    if turn.error is not None:
        yield Text(f"the template raised: {turn.error}", style="red")
        yield from _raised(turn)
        return
    yield _field(
        "tokens", f"{turn.prompt_tokens:,} in the prompt; {turn.depth:,} shared, {turn.reused:,} reused"
    )
    left = turn.unexplained
    yield _field(
        "",
        f"{turn.reprefill:,} re-prefilled: {turn.unavoidable:,} unavoidable, {turn.avoidable:,} avoidable"
        + (f", of which {left:,} are not explained" if left else ""),
    )
    if turn.cost is not None:
        error = "" if turn.cost.error is None else f", with an error of {duration(turn.cost.error)}"
        yield _field("seconds", f"{duration(turn.cost.seconds)} ({turn.cost.kind}{error})")
    yield from _server(turn)
    since = turn.since_previous
    if turn.predecessor is None:
        yield _field("diverges", "nowhere: it begins a conversation")
    elif turn.divergence is None and since is not None and since.cause is not None:
        yield _field("diverges", f"from its predecessor's prompt at token {since.tokens:,}: {since.cause}")
    elif turn.divergence is None:
        yield _field("diverges", "nowhere: what its predecessor stored is a prefix of it")
    else:
        yield from _divergence(turn.divergence, block_size)
    for miss in turn.losses:
        yield _field(
            "cache", f"{miss.cause}: {miss.tokens:,} shared tokens are not reused, since {miss.evidence}"
        )
        if miss.remedy is not None:
            yield _remedy(miss.remedy)


def _raised(turn: TurnReport) -> Iterator[Text]:
    """Say what a template raised on, what the server had made of it, and what would help."""
    yield from _server(turn)
    raised = turn.failure
    if raised is None:
        return
    yield _field("at", _place(Place("message" if raised.message else "head", raised.message, raised.line)))
    yield _field("cause", raised.evidence)
    for remedy in raised.remedies:
        yield Text(f"  {'remedy':<8} {remedy.set}", style="green").append(
            f"; paste {remedy.paste}" if remedy.paste else ""
        )


def _server(turn: TurnReport) -> Iterator[Text]:
    """Say what the server did to which messages; of one that it writes, never that it was dropped."""
    placed = {index for action in turn.actions if action.kind in _PLACED for index in action.messages}
    for number, action in enumerate(turn.actions):
        if action.kind == "kept":
            continue
        kind: str = action.kind
        later = {index for other in turn.actions[number + 1 :] for index in other.messages}
        if kind == "dropped" and (later | placed).intersection(action.messages):
            kind = "shortened"  # what is left of the message is moved or converted
        which = f" {named_messages(action.messages)}" if action.messages else ""
        yield _field("server", f"{kind}{which}: {action.why}")


def _divergence(divergence: Divergence, block_size: int) -> Iterator[Text]:
    block = f", in block {divergence.block} of {block_size} tokens" if block_size > 1 else ""
    yield _field(
        "diverges",
        f"from turn {divergence.stored_turn} at token {divergence.tokens:,}, "
        f"character {divergence.chars:,}{block}",
    )
    yield _field("owner", _place(Place(divergence.region, divergence.message, divergence.line)))
    if divergence.was is not None:
        yield _field("", f"{_place(divergence.was)} in the stored prompt")
    yield from _texts(divergence)
    if divergence.stored_ids or divergence.prompt_ids:
        yield _field("ids", f"stored {list(divergence.stored_ids)}, now {list(divergence.prompt_ids)}")
    if divergence.cause is None:
        yield _field(
            "cause", "none was looked for, or there is none: nothing was written after the generation prompt"
        )
        return
    for number, link in enumerate(divergence.chain, 1):
        name = "cause" if number == 1 else f"then {number}"
        sure = "confirmed" if link.confirmed else "not known" if link.cause == "other" else "likely"
        where = (
            ""
            if number == 1
            else f" at token {link.tokens:,}, in {_place(Place(link.region, link.message, link.line))}"
        )
        yield _field(name, f"{link.cause} ({sure}){where}: {link.evidence}")
        for remedy in divergence.remedies if number == 1 else filter(None, [link.remedy]):
            yield _remedy(remedy)


def _texts(divergence: Divergence) -> Iterator[Text]:
    """Show both texts, one below the other, with the differing part marked."""
    before = _escaped(divergence.before[-BEFORE:])
    stored, prompt = divergence.stored[:SHOWN], divergence.prompt[:SHOWN]
    differing = _differing(stored, prompt)
    for name, text, size in (("stored", stored, differing[0]), ("now", prompt, differing[1])):
        line = _field(name, before)
        line.append(_escaped(text[:size]), style="reverse")
        line.append(_escaped(text[size:]))
        yield line
    widest = max(len(_escaped(text[:size])) for text, size in zip((stored, prompt), differing, strict=True))
    yield _field("", " " * len(before) + "^" * max(1, widest))


def _differing(stored: str, prompt: str) -> tuple[int, int]:
    """Return how many characters of each text differ before both are the same again."""
    match = SequenceMatcher(None, stored, prompt, autojunk=False).find_longest_match()
    return (match.a, match.b) if match.size >= _ALIKE else (len(stored), len(prompt))


def _escaped(text: str) -> str:
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _field(name: str, text: str) -> Text:
    return Text(f"  {name:<9} {text}")


def _remedy(remedy: Remedy) -> Text:
    line = Text(f"  {'remedy':<9} {remedy.set}: saves {remedy.saves:,} tokens", style="green")
    return line.append(f"; paste {remedy.paste}") if remedy.paste else line


def _place(place: Place) -> str:
    line = f", template line {place.line}" if place.line else ""
    return f"{_message(place.message) if place.message else _REGIONS.get(place.region, 'a message')}{line}"


def _message(message: MessageRef) -> str:
    index = "the system prompt" if message.index is None else f"message {message.index} ({message.role})"
    return f"{index}, {message.field}" if message.field else index


#: What a server does to a message that it then writes.
_PLACED = frozenset({"kept", "hoisted", "noted", "relocated", "merged"})
_REGIONS = {
    "tools": "the tool list",
    "generation": "the generation prompt",
    "head": "text that the template writes before or between messages",
}
