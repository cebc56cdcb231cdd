"""The reasoning of a message in whatever form a client sends it.

It is a key, a think block, a thinking part, or an item of its own among those of OpenAI's responses.
"""

from __future__ import annotations

from typing import Any

from ..conversation import Message, Request
from ..templates.rendering import REASONING_KEYS

OPENS, CLOSES = "<think>", "</think>"
#: What ends the reasoning of a generated reply, in the notations of known families of models.
_ENDS = (CLOSES, "[/THINK]", "</seed:think>", "<channel|>", "</thought>")
#: Where a reply in channels (gpt-oss) says what it has to say.
_FINAL = "<|channel|>final<|message|>"


def split_reply(text: str) -> tuple[str, str] | None:
    """Split what a model wrote into its reasoning and the rest; None where nothing shows where that ends."""
    before, found, after = text.rpartition(_FINAL)
    if found and before:
        return before, found + after
    for end in _ENDS:
        before, found, after = text.partition(end)
        if found:
            return before.removeprefix(OPENS).strip(), after
    return None


def reasoning_of(message: Message) -> str:
    """Return a message's reasoning; empty where it has none."""
    for key in REASONING_KEYS:
        value = message.data.get(key)
        if isinstance(value, str) and value:
            return value
    if is_reasoning_item(message):
        return _item_reasoning(message)
    content = message.data.get("content")
    if isinstance(content, str) and CLOSES in content:
        return content.split(CLOSES, 1)[0].removeprefix(OPENS).strip()
    if isinstance(content, list):
        return "\n".join(_part_reasoning(part) for part in content if _is_reasoning(part))
    return ""


def is_reasoning_item(message: Message) -> bool:
    """Tell whether a message is an item of reasoning, of a request in the form of OpenAI's responses."""
    return message.data.get("type") == "reasoning" and "role" not in message.data


def _item_reasoning(item: Message) -> str:
    """Return the text of an item of reasoning: of its content, else of its summary, as servers read it."""
    for key in ("content", "summary"):
        parts = item.data.get(key)
        texts = [_part_reasoning(part) for part in parts if isinstance(part, dict)] if parts else []
        if any(texts):
            return "\n".join(texts)
    return ""


def reasoning_lost(earlier: Request, later: Request) -> bool:
    """Tell whether a request brings the earlier one's reply back without the reasoning that it had."""
    at = len(earlier.messages)
    if (
        earlier.reply is None
        or at >= len(later.messages)
        or later.messages[at].data.get("role") != "assistant"
    ):
        return False
    return bool(reasoning_of(Message(earlier.reply, at))) and not reasoning_of(later.messages[at])


def without_reasoning(message: Message) -> Message | None:
    """Return a message without its reasoning; None where it has none, nor an empty think block.

    An item of reasoning stays, without a text.
    """
    if is_reasoning_item(message):
        bare = {**message.data, "summary": [], "content": []}
        return Message(bare, message.index) if reasoning_of(message) else None
    data: dict[str, Any] = {key: value for key, value in message.data.items() if key not in REASONING_KEYS}
    content = data.get("content")
    if isinstance(content, str) and CLOSES in content:
        data["content"] = content.split(CLOSES, 1)[1].lstrip("\n")
    elif isinstance(content, list):
        data["content"] = [part for part in content if not _is_reasoning(part)]
    return None if data == dict(message.data) else Message(data, message.index)


def _is_reasoning(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in ("thinking", "reasoning", "redacted_thinking")


def _part_reasoning(part: dict[str, Any]) -> str:
    return str(part.get("thinking") or part.get("text") or "")
