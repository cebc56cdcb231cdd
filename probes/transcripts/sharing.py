"""Values of one request that are those of earlier ones: kept once, and the same objects.

A conversation's requests repeat each other, so the memory of all of them stays near that of what they say
that is new, and a caller can tell by identity what did not change.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from ..conversation import Message, Request


def same_text(one: Any, other: Any) -> bool:
    """Whether two values that came from JSON have the same JSON text: key order and number types count."""
    # Version 2 of marshal's format depends on nothing but the value, and is ten times as fast as JSON.
    return one is other or marshal.dumps(one, 2) == marshal.dumps(other, 2)


class SharedMessages:
    """The messages of a recording, each kept and checked once, however many requests repeat it."""

    def __init__(self) -> None:
        self._known: dict[bytes, Message] = {}
        self._elsewhere: dict[tuple[int, int], Message] = {}

    def read(self, written: Any, index: int, check: Callable[[], Message]) -> Message:
        """Return the message that an item of a request stands for.

        Args:
            written: the item as it was read.
            index: its index in the request.
            check: reads an item that was not seen before.
        """
        name = text_digest(written)
        known = self._known.get(name)
        if known is None:
            known = check()
            # What was written differently may be read alike: marks of a client's cache are left out.
            seen = text_digest(known.data)
            if not name or not seen:
                return known
            known = self._known.setdefault(seen, known)
            self._known[name] = known
        if known.index == index:
            return known
        place = (id(known), index)
        if place not in self._elsewhere:
            self._elsewhere[place] = replace(known, index=index)
        return self._elsewhere[place]


def text_digest(value: Any) -> bytes:
    """Return a short name of a value's JSON text; nothing where it is nested too deeply for one."""
    try:
        return blake2b(marshal.dumps(value, 2), digest_size=16).digest()
    except ValueError:
        return b""


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
