"""What became of each system turn of a request on its way into the prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ..conversation import SYSTEM_ROLES, TOP_LEVEL, Message, Request
from ..policies.base import Prepared
from ..policies.rewrite.system_turns import is_system
from .missing_texts import client_texts
from .text_spans import TextSpan

Outcome = Literal["kept", "moved", "noted", "relocated", "hoisted", "dropped", "lost"]


@dataclass(frozen=True, slots=True)
class SystemTurn:
    """One system or developer message with text. The field names are the JSON names.

    Attributes:
        message: index of the message in the client's request; -1 for the top-level system text.
        role: its role there.
        leading: whether only system messages are before it.
        outcome: what the server did: `kept` in place, `hoisted` into the first system block, `noted` in
            another turn or as one, `relocated` into turns of other roles elsewhere, or `dropped`. Or the
            server kept it, and the template wrote it further up (`moved`) or left it out (`lost`); these two
            only where the template rendered.
    """

    message: int
    role: str
    leading: bool
    outcome: Outcome


def system_turns(
    client: Request, prepared: Prepared, spans: Sequence[TextSpan], missing: Sequence[int]
) -> tuple[SystemTurn, ...]:
    """Say what became of each system turn that has text.

    Args:
        client: the request as the client sent it.
        prepared: what the template got.
        spans: where texts were found in the prompt; empty where there is none.
        missing: the messages without text in the prompt.
    """
    with_text = client_texts(client)
    return tuple(
        SystemTurn(index, role, leading, _outcome(index, leading, prepared, spans, missing))
        for index, role, leading in _system_messages(client)
        if index in with_text
    )


def _system_messages(client: Request) -> Iterator[tuple[int, str, bool]]:
    if client.system:
        yield TOP_LEVEL, "system", True
    leading = True
    for message in client.messages:
        role = str(message.data.get("role"))
        leading = leading and role in SYSTEM_ROLES
        if role in SYSTEM_ROLES:
            yield message.index, role, leading


def _outcome(
    index: int, leading: bool, prepared: Prepared, spans: Sequence[TextSpan], missing: Sequence[int]
) -> Outcome:
    messages = prepared.request.messages
    place = next((n for n, message in enumerate(messages) if index in message.origins), None)
    if place is None:
        return "dropped"
    if index in missing:
        return "lost"
    if not is_system(messages[place]):
        noted = any(action.kind == "noted" and index in action.messages for action in prepared.actions)
        return "noted" if noted else "relocated"
    if leading:
        return "kept"
    if _leads(messages, place):
        return "hoisted"
    return "moved" if _stands_earlier(index, place, spans) else "kept"


def _leads(messages: Sequence[Message], place: int) -> bool:
    return all(is_system(message) for message in messages[:place])


def _stands_earlier(index: int, place: int, spans: Sequence[TextSpan]) -> bool:
    """Tell whether a text stands before that of a message which precedes it."""
    start = next((span.start for span in spans if span.message == index), None)
    before = [span.start for span in spans if span.rendered_index < place and span.field == "content"]
    return start is not None and max(before, default=start) > start
