"""Tool-call arguments as servers hand them to a template: a dict where the client sent its JSON text."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ...conversation import Message
from ..base import Messages, Rewrite
from .system_turns import each_changed


def parse_arguments(messages: Messages, other: Callable[[str], Any] | None = None) -> Rewrite:
    """Return the messages with the arguments of tool calls parsed, where they are the JSON text of an object.

    OpenAI's API sends text, most templates want a dict.

    Args:
        messages: the conversation.
        other: what the server makes of a text that is not the JSON of an object. None: an empty text is an
            empty object, and any other stays as it is, although servers then answer with an error.
    """
    why = "the arguments of its tool calls are parsed from JSON"
    return each_changed(
        messages,
        lambda message: with_calls(message, lambda call: _parsed_call(call, other)),
        "converted",
        why,
    )


def fill_arguments(messages: Messages) -> Rewrite:
    """Give calls without arguments an empty object."""

    def filled(call: Any) -> Any:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            return call
        return call if function.get("arguments") else {**call, "function": {**function, "arguments": "{}"}}

    why = "calls without arguments get an empty object"
    return each_changed(messages, lambda message: with_calls(message, filled), "converted", why)


def with_calls(message: Message, change: Callable[[Any], Any]) -> Message:
    """Return a message with changed tool calls, itself where `change` returns all of them as they are."""
    calls = message.data.get("tool_calls")
    if not isinstance(calls, list):
        return message
    changed = [change(call) for call in calls]
    if all(old is new for old, new in zip(calls, changed, strict=True)):
        return message
    return message.replace(tool_calls=changed)


def _parsed_call(call: Any, other: Callable[[str], Any] | None) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    text = function["arguments"]
    try:
        arguments = json.loads(text) if text.strip() or other else {}
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        if other is None:
            return call
        arguments = other(text)
    return {**call, "function": {**function, "arguments": arguments}}


def as_value(text: str) -> dict[str, Any]:
    """Return text that is not the JSON of an object as one: whatever it is, under the key `value`."""
    try:
        return {"value": json.loads(text)}
    except (ValueError, RecursionError):
        return {"value": text}
