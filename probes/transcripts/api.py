"""What an API is for the readers: how a request of its dialect is told from others, and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..conversation import ActualReuse, Dialect, Message, Request


@dataclass(frozen=True, slots=True)
class Api:
    """One API whose requests are read.

    The functions that read raise InputError where a server would refuse what they are given; `where` is the
    place of the request, or of the message, to name to people.

    Attributes:
        dialect: the wire format.
        name: what people call it.
        paths: how the addresses of its requests end.
        tells: whether an object has what only requests of this API have. It may be any JSON object.
        settings: returns what a body says beside its messages, as a request without any.
        items: returns the messages of a body as they were written.
        message: returns one message, given its index.
        begins: whether a message, as written, asks to be continued.
        reply: returns the assistant message of a response, or None where there is none.
        actual: returns what a response says of the server's reuse; None where it says nothing. It never
            raises: a number of another type is no number.
    """

    dialect: Dialect
    name: str
    paths: tuple[str, ...]
    tells: Callable[[Mapping[str, Any]], bool]
    settings: Callable[[Mapping[str, Any], str], Request]
    items: Callable[[Mapping[str, Any], str], list[Any]]
    message: Callable[[Any, int, str], Message]
    begins: Callable[[Any], bool]
    reply: Callable[[Any, str], Mapping[str, Any] | None]
    actual: Callable[[Any], ActualReuse | None]


def never_begins(message: Any) -> bool:
    """Say of any message that it does not ask to be continued."""
    return False
