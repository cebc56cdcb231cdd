"""What messages, system texts and tool lists are compared by: without what no template sees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

from ...conversation import Message
from ..sharing import text_digest

BILLING = "x-anthropic-billing-header"
"""How the line begins that Claude Code puts before its system text; servers know it too."""

#: Keys of a message, a block or a call that no template sees, or that a client makes anew.
_UNSEEN = frozenset(
    {
        "id",
        "tool_call_id",
        "tool_use_id",
        "call_id",
        "encrypted_content",
        "cache_control",
        "metadata",
        "output_config",
        "status",
        "annotations",
        "logprobs",
        "index",
        "token_ids",
    }
)
#: Keys whose values are a call's arguments: whatever their fields are called, they count.
_VERBATIM = frozenset({"arguments", "input"})
_TEXTS = frozenset({"text", "input_text", "output_text"})
#: More words than this are more than a few: what a model says again by chance is shorter.
_FEW_WORDS = 4
#: Share of two texts from which on they are nearly equal.
NEARLY = 0.9
#: Words of the longer text up to which two texts are compared word by word.
_MOST_WORDS = 4000


@dataclass(slots=True)
class MessageKey:
    """A message as it is compared; equal messages of a recording have the same object.

    Attributes:
        value: what counts of it.
        role: its role, or the type of an item without one.
        by_model: whether a model wrote it.
        substantial: whether it is something that a model or a tool wrote, and more than a few words.
    """

    value: Mapping[str, Any]
    role: str
    by_model: bool
    substantial: bool
    _text: str | None = field(default=None, repr=False)

    @property
    def text(self) -> str:
        """All that it says, for telling how much two of them have in common."""
        if self._text is None:
            self._text = "\n".join(_said(self.value))
        return self._text


class MessageKeys:
    """Finds the keys of a recording's messages: each text of a message is taken apart once."""

    def __init__(self) -> None:
        self._by_text: dict[bytes, tuple[MessageKey, Message]] = {}
        self._by_object: dict[int, tuple[MessageKey, Message]] = {}
        self._by_value: dict[bytes, MessageKey] = {}
        self._alike: dict[tuple[int, int], bool] = {}

    def key(self, message: Message) -> tuple[MessageKey, Message]:
        """Return a message's key, and the message with the object of an equal earlier one."""
        known = self._by_object.get(id(message.data))
        if known is None:
            name = text_digest(message.data)
            known = self._by_text.get(name)
            if known is None:
                known = self._by_text[name] = (self.of_value(message.data), message)
                self._by_object[id(message.data)] = known
        key, first = known
        if first.data is message.data:
            return key, message
        return key, Message(first.data, message.index)

    def of_value(self, data: Mapping[str, Any]) -> MessageKey:
        """Return the key of a message's data."""
        value = _seen(data)
        return self._by_value.setdefault(text_digest(value), _key(value))

    def alike(self, one: MessageKey, other: MessageKey) -> bool:
        """Tell whether two messages are equal or nearly so."""
        if one is other:
            return True
        pair = (id(one), id(other))
        if pair not in self._alike:
            self._alike[pair] = one.role == other.role and nearly_equal(one.text, other.text)
        return self._alike[pair]


def system_text(system: Any) -> str:
    """Return a request's top-level system text without the billing line."""
    texts = [system] if isinstance(system, str) else [str(block.get("text", "")) for block in system or ()]
    return "\n".join(text for text in texts if not text.startswith(BILLING))


def nearly_equal(one: str, other: str) -> bool:
    """Tell whether at least nine tenths of two texts are the same."""
    if one == other:
        return True
    longest, shortest = max(len(one), len(other)), min(len(one), len(other))
    if shortest < NEARLY * longest:
        return False
    begins = _shared(one, other)
    ends = _shared(one[: begins - 1 if begins else None : -1], other[: begins - 1 if begins else None : -1])
    if min(begins + ends, shortest) >= NEARLY * longest:
        return True
    first, second = one.split(), other.split()
    if max(len(first), len(second)) > _MOST_WORDS:
        first, second = one.splitlines(), other.splitlines()
    matcher = SequenceMatcher(None, first, second, autojunk=False)
    if matcher.quick_ratio() < NEARLY:
        return False
    return matcher.ratio() >= NEARLY


def call_texts(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts in the arguments of a message's calls."""
    for call in data.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            yield from _strings(function.get("arguments"))
    content = data.get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, Mapping) and block.get("type") == "tool_use":
            yield from _strings(block.get("input"))
    if "role" not in data and "arguments" in data:
        yield from _strings(data["arguments"])


def texts_of(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of a message's content, one for each part."""
    content = data.get("content")
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else ():
        if isinstance(part, Mapping) and isinstance(part.get("text"), str):
            yield part["text"]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        parsed = _parsed(value)
        if parsed is None:
            yield value
        else:
            yield from _strings(parsed)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)


def _parsed(text: str) -> Any:
    """Return the object or list whose JSON a text is; None where it is none."""
    import json

    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def _shared(one: str, other: str) -> int:
    """Return how many leading characters two texts share."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _key(value: Mapping[str, Any]) -> MessageKey:
    role = str(value.get("role") or value.get("type") or "")
    content = value.get("content")
    blocks = [each for each in content if isinstance(each, Mapping)] if isinstance(content, list) else []
    types = {str(block.get("type")) for block in blocks}
    item = "role" not in value and "type" in value
    result = role in ("tool", "function") or "tool_result" in types or (item and role.endswith("_output"))
    by_model = role == "assistant" or (item and not role.endswith("_output"))
    called = "tool_calls" in value or "tool_use" in types or (item and role not in ("reasoning", "message"))
    wordy = by_model and _words(value) > _FEW_WORDS
    return MessageKey(value, role, by_model, result or (by_model and called) or wordy)


def _said(value: Any) -> Iterator[str]:
    """Yield the texts of a message, without its role and the types of its parts."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            if key not in ("role", "type"):
                yield from _said(each)
    elif isinstance(value, list):
        for each in value:
            yield from _said(each)
    elif value is not None:
        yield str(value)


def _words(value: Any) -> int:
    """Count the words that a message says, thoughts included."""
    if isinstance(value, str):
        return len(value.split())
    if isinstance(value, Mapping):
        said = (
            each for key, each in value.items() if key not in ("role", "type", "name", "signature", "data")
        )
        return sum(map(_words, said))
    return sum(map(_words, value)) if isinstance(value, list) else 0


def _seen(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what counts of a message: fields without a value are left out, texts in a list are one."""
    value: dict[str, Any] = {}
    for key, each in data.items():
        if key in _UNSEEN or each is None or each == "" or each == []:
            continue
        if key == "type" and each == "message":
            continue
        value[key] = each if key in _VERBATIM else _seen_part(each)
    return value


def _seen_part(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _seen(value)
    if not isinstance(value, list):
        return value
    parts = [_seen_part(each) for each in value]
    texts = [part.get("text") for part in parts if isinstance(part, Mapping) and part.get("type") in _TEXTS]
    if texts and len(texts) == len(parts) and all(isinstance(text, str) for text in texts):
        return "".join(map(str, texts))
    return parts
