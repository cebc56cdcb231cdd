"""Values of one request that are those of the request before: kept once, and the same objects.

A conversation's requests repeat each other, so the memory of all of them stays near that of the longest, and
a caller can tell by identity what did not change.
"""

from __future__ import annotations

import marshal
from typing import Any

from ..conversation import Message, Request


def same_text(one: Any, other: Any) -> bool:
    """Whether two values that came from JSON have the same JSON text: key order and number types count."""
    # Version 2 of marshal's format depends on nothing but the value, and is ten times as fast as JSON.
    return one is other or marshal.dumps(one, 2) == marshal.dumps(other, 2)


def shared_message(message: Message, previous: tuple[Message, ...]) -> Message:
    """Return the message of the same index in the request before where its JSON text is the same."""
    if message.index < len(previous) and same_text(previous[message.index].data, message.data):
        return previous[message.index]
    return message


def sharing(request: Request, previous: Request) -> Request:
    """Return a request with what it has beside its messages taken from the one before, where it is alike."""
    return request.replace(
        tools=_shared(request.tools, previous.tools),
        system=_shared(request.system, previous.system),
        fields=_shared(request.fields, previous.fields),
    )


def _shared(value: Any, earlier: Any) -> Any:
    if same_text(value, earlier):
        return earlier
    # One block of a system text may change in each request, and the others be long.
    if isinstance(value, list) and isinstance(earlier, list):
        alike = [_shared(new, old) for new, old in zip(value, earlier, strict=False)]
        return [*alike, *value[len(alike) :]]
    return value
