"""Where the texts of messages stand in a prompt, found as strings and without another render.

Approximate, unlike ownership.py: a text that the template rewrote is not found, and of several equal texts
the order decides which is which. Texts that occur once are placed first, longest first; the others are looked
for between their neighbours. A text in a content is then also looked for elsewhere, since templates move
system turns. No character gets two texts.
"""

from __future__ import annotations

import json
from bisect import bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..conversation import Message
from ..templates.rendering import REASONING_KEYS

Field = Literal["reasoning", "content", "tool_calls"]
_END_OF_REASONING = "</think>"


@dataclass(frozen=True, slots=True)
class TextSpan:
    """A stretch of a prompt that one text of a message fills.

    Attributes:
        start: offset of its first character in the prompt.
        end: offset behind its last character.
        message: index of the message in the client's request.
        rendered_index: index of the message in the list that the template saw.
        field: which of the message's texts it is.
    """

    start: int
    end: int
    message: int
    rendered_index: int
    field: Field


@dataclass(frozen=True, slots=True)
class _Needle:
    text: str
    message: int
    rendered_index: int
    field: Field

    def at(self, start: int, end: int) -> TextSpan:
        return TextSpan(start, end, self.message, self.rendered_index, self.field)

    @property
    def forms(self) -> Iterator[str]:
        """The text as it may stand in a prompt: as it is, as JSON, or without the reasoning before it."""
        yield self.text
        quoted = json.dumps(self.text, ensure_ascii=False)[1:-1]
        if quoted != self.text:
            yield quoted
        reply = self.text.rpartition(_END_OF_REASONING)[2].strip()
        if reply and reply != self.text:
            yield reply


def find_texts(prompt: str, messages: Sequence[Message]) -> tuple[TextSpan, ...]:
    """Return where the texts of rendered messages stand in their prompt, by offset.

    Args:
        prompt: the text that the template wrote.
        messages: the messages that the template saw.
    """
    needles = [needle for index, message in enumerate(messages) for needle in _needles(message, index)]
    found: dict[int, TextSpan] = {}
    claimed = _Claims()
    for number in sorted(range(len(needles)), key=lambda each: -len(needles[each].text)):
        if (span := _only(prompt, needles[number])) and claimed.add(span):
            found[number] = span
    for number, needle in enumerate(needles):
        if number not in found and (span := _between(prompt, needles, number, found, claimed)):
            found[number] = span
        elif number not in found and needle.field == "content":
            span = _first(prompt, needle, 0, len(prompt), claimed)
            if span:
                found[number] = span
    return tuple(sorted(found.values(), key=lambda span: span.start))


def _needles(message: Message, index: int) -> Iterator[_Needle]:
    reasoning = next((message.data[key] for key in REASONING_KEYS if message.data.get(key)), None)
    texts: list[tuple[str, int, Field]] = []
    if isinstance(reasoning, str):
        texts.append((reasoning, message.index, "reasoning"))
    texts += [(text, owner, "content") for text, owner in owned_texts(message)]
    texts += [(text, message.index, "tool_calls") for text in _arguments(message.data.get("tool_calls"))]
    for text, owner, field in texts:
        if text.strip():
            yield _Needle(text.strip(), owner, index, field)


def owned_texts(message: Message) -> Iterator[tuple[str, int]]:
    """Yield the texts of a rendered message's content, each with the client's index of its owner."""
    content = message.content
    parts: list[tuple[int | None, Any]] = [(None, content)]
    if isinstance(content, list):
        parts = list(enumerate(each.get("text") if isinstance(each, Mapping) else each for each in content))
    for part, text in parts:
        if not isinstance(text, str):
            continue
        starts = [(piece.start, piece.message) for piece in message.pieces if piece.part == part]
        starts = starts or [(0, message.index)]
        ends = [start for start, _ in starts[1:]] + [len(text)]
        for (start, owner), end in zip(starts, ends, strict=True):
            yield text[start:end], owner


def _arguments(value: Any) -> Iterator[str]:
    """Yield the texts among the arguments of tool calls."""
    if not isinstance(value, list):
        return
    for call in value:
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            yield from _leaves(function.get("arguments"))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _leaves(each)


class _Claims:
    """The stretches that have an owner, none of which overlap."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: dict[int, int] = {}

    def blocker(self, start: int, end: int) -> int | None:
        """Return the end of a claimed stretch that overlaps another one, or None."""
        place = bisect_right(self._starts, start)
        for near in self._starts[max(place - 1, 0) : place + 1]:
            if near < end and self._ends[near] > start:
                return self._ends[near]
        return None

    def add(self, span: TextSpan) -> bool:
        """Claim a stretch; False where it overlaps another one."""
        if self.blocker(span.start, span.end) is not None:
            return False
        insort(self._starts, span.start)
        self._ends[span.start] = span.end
        return True


def _only(prompt: str, needle: _Needle) -> TextSpan | None:
    """Return where a text stands that stands once."""
    for form in needle.forms:
        start = prompt.find(form)
        if start >= 0:
            return None if prompt.find(form, start + 1) >= 0 else needle.at(start, start + len(form))
    return None


def _between(
    prompt: str, needles: Sequence[_Needle], number: int, found: Mapping[int, TextSpan], claimed: _Claims
) -> TextSpan | None:
    """Return where a text stands between the nearest texts before and after it that were placed."""
    low = next((found[n].end for n in range(number - 1, -1, -1) if n in found), 0)
    later = (found[n].start for n in range(number + 1, len(needles)) if n in found)
    high = next((start for start in later if start >= low), len(prompt))
    return _first(prompt, needles[number], low, high, claimed)


def _first(prompt: str, needle: _Needle, low: int, high: int, claimed: _Claims) -> TextSpan | None:
    """Claim and return the first unclaimed place of a text within a stretch."""
    for form in needle.forms:
        start = prompt.find(form, low, high)
        while start >= 0:
            span = needle.at(start, start + len(form))
            end = claimed.blocker(span.start, span.end)
            if end is None:
                claimed.add(span)
                return span
            start = prompt.find(form, end, high)
    return None
