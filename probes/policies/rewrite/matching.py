"""Which message of the client's a text came from, found by the texts alone.

For code that rewrites a conversation and says nothing of where its texts are from, such as a person's own
(`own_code`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...conversation import SYSTEM_ROLES, TOP_LEVEL, Message, Piece, Request
from ..base import Action, ActionKind, Messages
from .texts import part_text, rebuilt

#: Fields of a message, a block or an item whose texts can reach a prompt.
_TEXT_FIELDS = ("content", "text", "thinking", "reasoning", "reasoning_content", "output", "summary")
#: Fields that name a tool call, in a turn that makes it and in one that answers it.
_CALL_IDS, _ANSWER_IDS = ("id", "call_id"), ("tool_call_id", "tool_use_id", "call_id")
#: The shortest text that is looked for within another one.
_LEAST = 3


def matched(request: Request, written: Sequence[Mapping[str, Any]]) -> Messages:
    """Return rewritten messages with the client's messages that their texts came from.

    A text that is the client's own, but for white space around it, is that message's; of the others, those
    client's texts that stand in them own their characters, and what is between belongs to the text after it.
    A message with none of the client's texts belongs to the call that it makes or answers, else to the
    message before it.

    Args:
        request: what the client sent.
        written: chat messages that were made of it; their content is a string, a list of parts, or None.
    """
    sources = _Sources(request)
    slots = [_texts(message) for message in written]
    found: dict[tuple[int, int | None], tuple[tuple[int, int], ...]] = {
        (number, part): ((0, index),)
        for number, texts in enumerate(slots)
        for part, text in texts
        if (index := sources.take(text)) is not None
    }
    for number, texts in enumerate(slots):
        for part, text in texts:
            if (number, part) not in found and text.strip():
                found[number, part] = sources.within(text)
    messages: list[Message] = []
    earlier = TOP_LEVEL if request.system else next((each.index for each in request.messages), TOP_LEVEL)
    for number, message in enumerate(written):
        owners = {part: found.get((number, part), ()) for part, _ in slots[number]}
        called = sources.called(message)
        first = next((pairs[0][1] for pairs in owners.values() if pairs), None)
        own = called if called is not None else first if first is not None else earlier
        pieces = tuple(
            Piece(0 if place == 0 else start, index, part)
            for part, pairs in owners.items()
            for place, (start, index) in enumerate(pairs or ((0, own),))
        )
        whole = Message(message, own)
        messages.append(rebuilt(whole, whole.content, pieces) if pieces else whole)
        earlier = own
    return tuple(messages)


def actions_of(request: Request, messages: Messages, why: str) -> tuple[Action, ...]:
    """Return what was done to the client's messages, as far as the result shows it.

    Args:
        request: what the client sent.
        messages: what was made of it, with its provenance.
        why: the clause for people.
    """
    found: dict[ActionKind, list[int]] = {}
    for message in request.messages:
        kind = _done_to(message, [each for each in messages if message.index in each.origins], messages)
        if kind is not None:
            found.setdefault(kind, []).append(message.index)
    return tuple(Action(kind, tuple(indices), why) for kind, indices in found.items())


def _done_to(message: Message, carriers: Sequence[Message], messages: Messages) -> ActionKind | None:
    """Return what became of one of the client's messages; None where nothing did."""
    if not carriers:
        return "dropped"
    carrier = carriers[0]
    if carrier.data.get("role") == message.data.get("role") and carrier.origins == (message.index,):
        return None if dict(carrier.data) == dict(message.data) else "converted"
    if message.data.get("role") in SYSTEM_ROLES:
        if carrier is messages[0]:
            return "hoisted" if carrier.index != message.index else None
        return "kept" if carrier.data.get("role") in SYSTEM_ROLES else "noted"
    return "merged" if carrier.index != message.index else None


def _texts(message: Mapping[str, Any]) -> list[tuple[int | None, str]]:
    """Return the texts of a message's content, each with the number of its part."""
    content = message.get("content")
    if isinstance(content, str):
        return [(None, content)]
    parts = enumerate(content) if isinstance(content, list) else ()
    return [(number, text) for number, part in parts if (text := part_text(part)) is not None]


class _Sources:
    """The client's texts, and which of them were found already."""

    def __init__(self, request: Request) -> None:
        given: list[tuple[int, Any]] = [(TOP_LEVEL, {"content": request.system})]
        given += [(message.index, message.data) for message in request.messages]
        self._texts = [(index, text) for index, data in given for text in _strings(data)]
        self._free = [True] * len(self._texts)
        self._places: dict[str, list[int]] = {}
        for place, (_, text) in enumerate(self._texts):
            self._places.setdefault(text.strip(), []).append(place)
        self._calls: dict[tuple[str, str], int] = {}
        for index, data in given:
            for name in _ids(data, _CALL_IDS):
                self._calls.setdefault(("call", name), index)
            for name in _ids(data, _ANSWER_IDS):
                self._calls["answer", name] = index

    def take(self, text: str) -> int | None:
        """Return the first message with this text that was not found before; None where there is none."""
        for place in self._places.get(text.strip(), ()):
            if self._free[place]:
                self._free[place] = False
                return self._texts[place][0]
        return None

    def within(self, text: str) -> tuple[tuple[int, int], ...]:
        """Return where the client's texts stand in another one: offsets and messages, in ascending order."""
        found: list[tuple[int, int, int]] = []
        free = [place for place, left in enumerate(self._free) if left]
        for place in sorted(free, key=lambda place: -len(self._texts[place][1])):
            index, written = self._texts[place]
            looked_for = written.strip()
            start = _free_place(text, looked_for, found) if len(looked_for) >= _LEAST else -1
            if start >= 0:
                found.append((start, start + len(looked_for), index))
                self._free[place] = False
        found.sort()
        starts = [0, *(stop for _, stop, _ in found)]
        return tuple((start, index) for start, (_, _, index) in zip(starts, found, strict=False))

    def called(self, message: Mapping[str, Any]) -> int | None:
        """Return the message with the call that a message makes or answers; None where it does neither."""
        answered = [self._calls.get(("answer", name)) for name in _ids(message, ("tool_call_id",))]
        made = [self._calls.get(("call", name)) for name in _ids(message.get("tool_calls"), ("id",))]
        return next((index for index in (*answered, *made) if index is not None), None)


def _free_place(text: str, looked_for: str, taken: Sequence[tuple[int, int, int]]) -> int:
    """Return where a text stands in another one without touching what is taken there; -1 for nowhere."""
    start = text.find(looked_for)
    while start >= 0:
        stop = start + len(looked_for)
        after = [end for begin, end, _ in taken if start < end and begin < stop]
        if not after:
            return start
        start = text.find(looked_for, max(after))
    return -1


def _strings(value: Any) -> Iterator[str]:
    """Yield the texts of a message, a block or an item that can reach a prompt, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, Mapping):
        for name in _TEXT_FIELDS:
            yield from _strings(value.get(name))


def _ids(value: Any, fields: tuple[str, ...]) -> Iterator[str]:
    """Yield the ids under some fields of a message and its parts."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from _ids(item, fields)
    elif isinstance(value, Mapping):
        yield from (value[name] for name in fields if isinstance(value.get(name), str))
        for inner in ("content", "tool_calls"):
            if isinstance(value.get(inner), list):
                yield from _ids(value[inner], fields)
