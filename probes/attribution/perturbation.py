"""Changing the letters of a message's texts without changing their length or their markup.

Rendering a conversation again with one text altered shows which characters of the prompt came from it
(ownership.py). What steers a template must stay: roles, names, ids, markup, JSON syntax, white space.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..conversation import Message
from ..templates.rendering import REASONING_KEYS

#: Keys whose values steer a template or are no text that it writes.
_STEERING = frozenset(
    """audio file format id image image_url index input_audio mime_type name partial role tool_call_id type
    url video""".split()
)
_MARKUP = re.compile(r"<[^<>\n]{1,60}>|\[/?[A-Z_]+\]|\\u[0-9a-fA-F]{4}|\\.|https?://")
_FOREIGN = re.compile(r"[^\x00-\x7f]")
_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*"(?P<key>\s*:)?')
_SHIFT = str.maketrans(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
    "bcdefghijklmnopqrstuvwxyzaBCDEFGHIJKLMNOPQRSTUVWXYZA1234567890",
)


@dataclass(frozen=True, slots=True)
class MessageText:
    """One text of a rendered message that can be altered by itself.

    Attributes:
        rendered_index: index of the message in the list that the template sees.
        field: `content`, `reasoning`, `tool_calls`, or another key of the message.
        message: index, in the client's request, of the message that the text belongs to.
        start: offset of its first character within the content (0 for other fields).
        end: offset after its last character, or None for the end.
        part: index of the content part, or None where the content is not a list of parts.
    """

    rendered_index: int
    field: str
    message: int
    start: int = 0
    end: int | None = None
    part: int | None = None


def texts_of(message: Message, rendered_index: int) -> list[MessageText]:
    """Return the texts of a message, in the order of its keys; a built content counts as several texts."""
    texts = []
    seen_reasoning = False
    for key, value in message.data.items():
        if key in _STEERING or not isinstance(value, str | list | dict) or not value:
            continue
        if key in REASONING_KEYS:
            if not seen_reasoning:
                texts.append(MessageText(rendered_index, "reasoning", message.index))
            seen_reasoning = True
        elif key == "content" and message.pieces:
            following = [*message.pieces[1:], None]
            for piece, after in zip(message.pieces, following, strict=True):
                end = after.start if after is not None and after.part == piece.part else None
                texts.append(MessageText(rendered_index, key, piece.message, piece.start, end, piece.part))
        else:
            texts.append(MessageText(rendered_index, key, message.index))
    return texts


def occurs_in(message: Message, text: MessageText, written: str) -> bool:
    """Tell whether some of a text's words stand in a stretch of output as they are."""
    if text.field == "reasoning":
        value: Any = next((message.data[key] for key in REASONING_KEYS if message.data.get(key)), "")
    else:
        value = message.data.get(text.field)
    if text.part is not None and isinstance(value, list):
        value = _part_text(value[text.part])
    if isinstance(value, str):
        value = value[text.start : text.end]
    return any(leaf in written for leaf in _leaves(value))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if value.strip():
            yield value.strip()
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key == "arguments" and isinstance(item, str):
                yield from (
                    match.group()[1:-1] for match in _JSON_STRING.finditer(item) if len(match.group()) > 2
                )
            elif key not in _STEERING:
                yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)


def alter_message(message: Message, texts: list[MessageText]) -> Message:
    """Return a copy of a message with the letters and digits of some of its texts changed."""
    data = dict(message.data)
    for text in texts:
        if text.field == "reasoning":
            data |= {key: alter(data[key]) for key in REASONING_KEYS if data.get(key)}
        elif text.field == "content":
            data["content"] = _alter_content(data["content"], text)
        else:
            data[text.field] = alter(data[text.field])
    return Message(data, message.index, message.pieces)


def alter_tools(tools: tuple[Mapping[str, Any], ...]) -> tuple[Mapping[str, Any], ...]:
    """Return a copy of a tool list with its descriptions changed, or its names where it has none."""
    altered = tuple(_alter_key(tool, "description") for tool in tools)
    return altered if altered != tools else tuple(_alter_key(tool, "name") for tool in tools)


def _alter_key(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return {
            key: alter_text(item) if key == name and isinstance(item, str) else _alter_key(item, name)
            for key, item in value.items()
        }
    return [_alter_key(item, name) for item in value] if isinstance(value, list) else value


def _alter_content(content: Any, text: MessageText) -> Any:
    if isinstance(content, str):
        return _alter_range(content, text)
    if text.part is None or not isinstance(content, list):
        return alter(content)
    parts = list(content)
    part = parts[text.part]
    changed = _alter_range(_part_text(part), text)
    parts[text.part] = {**part, "text": changed} if isinstance(part, Mapping) else changed
    return parts


def _part_text(part: Any) -> str:
    text = part.get("text") if isinstance(part, Mapping) else part
    return text if isinstance(text, str) else ""


def _alter_range(value: str, text: MessageText) -> str:
    end = len(value) if text.end is None else text.end
    return value[: text.start] + alter_text(value[text.start : end]) + value[end:]


def alter(value: Any) -> Any:
    """Change the letters and digits of every text within a value, except what steers a template."""
    if isinstance(value, str):
        return alter_text(value)
    if isinstance(value, Mapping):
        return {
            key: item
            if key in _STEERING
            else _alter_arguments(item)
            if key == "arguments" and isinstance(item, str)
            else alter(item)
            for key, item in value.items()
        }
    return [alter(item) for item in value] if isinstance(value, list) else value


def alter_text(text: str) -> str:
    """Replace every letter and digit outside markup by another one."""
    parts = []
    start = 0
    for markup in _MARKUP.finditer(text):
        parts += [_shift(text[start : markup.start()]), markup.group()]
        start = markup.end()
    return "".join([*parts, _shift(text[start:])])


def _shift(text: str) -> str:
    shifted = text.translate(_SHIFT)
    if shifted.isascii():
        return shifted
    return _FOREIGN.sub(_foreign, shifted)


def _foreign(match: re.Match[str]) -> str:
    char = match.group()
    return ("ж" if char != "ж" else "з") if char.isalpha() else char


def _alter_arguments(text: str) -> str:
    """Change the string values of a JSON text, not its keys; all of it where it is no JSON object."""
    if not text.lstrip().startswith(("{", "[")):
        return alter_text(text)
    return _JSON_STRING.sub(
        lambda match: match.group() if match.group("key") else f'"{alter_text(match.group()[1:-1])}"', text
    )
