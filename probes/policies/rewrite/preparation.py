"""Steps that several servers take after their system turns are placed (docs/servers.md, sections 4 to 8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...conversation import Message, Request
from ..base import Action, Messages, Prepared, Rewrite
from .part_texts import part_texts
from .reasoning import thinking_type
from .system_turns import done, has_role
from .texts import Text, join, rebuilt
from .tool_texts import call_lines, result_prefix


def never_continued(start: Prepared) -> Prepared:
    """Return a prepared request for a server that always asks for a new turn, whatever the client wants."""
    if not start.request.partial:
        return start
    last = tuple(message.index for message in start.request.messages[-1:])
    why = "the server cannot continue a message and begins a new turn after it"
    request = start.request.replace(partial=False)
    return replace(start, request=request, actions=(*start.actions, Action("unsupported", last, why)))


def thinking_asked(request: Request) -> bool | None:
    """Return what the body's `thinking` or `enable_thinking` asks for; None where neither says."""
    if (thinking := thinking_type(request.fields)) is not None:
        return thinking
    asked = request.fields.get("enable_thinking")
    return asked if isinstance(asked, bool) else None


def thinks_by_default(request: Request) -> bool:
    """Return whether the model's name does not call it a coder, which is what two servers go by."""
    return "coder" not in str(request.fields.get("model") or "").lower()


def extract_text(
    messages: Messages, *, native: bool = True, list_result: Callable[[list[Any]], Any] | None = None
) -> Rewrite:
    """Return messages as the engines of Rapid-MLX and vllm-mlx for text models have them.

    Content lists become one text, their texts joined by newlines; of the keys, only role, content, and what
    ties tool calls to their results is kept.

    Args:
        messages: the conversation.
        native: whether calls and results keep their structure, which depends on the server's tool parser;
            else they become text.
        list_result: what becomes of a tool's result that is a list; None for its texts.
    """
    output = tuple(_extracted(message, native, list_result) for message in messages)
    pairs = list(zip(messages, output, strict=True))
    told = [old for old, new in pairs if not native and (has_role(old, "tool") or old.data.get("tool_calls"))]
    lost = [old for old, new in pairs if set(old.data) - set(new.data) - _KEPT]
    made = [old for old, new in pairs if old.content != new.content and old not in told]
    keys = sorted({key for message in lost for key in message.data} - _KEPT)
    why = f"the server leaves out its keys: {', '.join(keys)}"
    texts = "calls and results become text, because the tool parser keeps no other form"
    converted = done("converted", made, "its content becomes one text") + done("converted", told, texts)
    return Rewrite(output, converted + done("dropped", lost, why))


_KEPT = frozenset({"role", "content", "tool_calls", "tool_call_id"})


def _extracted(message: Message, native: bool, list_result: Callable[[list[Any]], Any] | None) -> Message:
    data: dict[str, Any] = {"role": message.data.get("role"), "content": message.content}
    calls = message.data.get("tool_calls")
    calls = calls if native or isinstance(calls, list) else None
    text = join(part_texts(message), "\n")
    if has_role(message, "tool"):
        return _result(message, text, native, list_result)
    if has_role(message, "assistant") and calls and native:
        data["tool_calls"] = calls
    elif has_role(message, "assistant") and calls:
        lines = [Text(line, ((0, message.index),)) for line in call_lines(calls)]
        text = join([text, *lines] if text or not lines else lines, "\n")
    elif isinstance(message.content, str) and data == message.data:
        return message
    return rebuilt(Message(data, message.index, message.pieces), text.text, text.pieces())


def _result(
    message: Message, text: Text, native: bool, list_result: Callable[[list[Any]], Any] | None
) -> Message:
    identity = message.data.get("tool_call_id") or ""
    own = Message({"role": "tool", "tool_call_id": identity, "content": ""}, message.index)
    if list_result is not None and isinstance(message.content, list) and message.content:
        given = list_result(message.content)
        if native:
            return own.replace(content=given)
        text = Text(str(given), ((0, message.index),))
    if native:
        return rebuilt(own, text.text, text.pieces())
    before = Text(result_prefix(identity), ((0, message.index),))
    whole = join((before, text), "")
    return rebuilt(Message({"role": "user", "content": ""}, message.index), whole.text, whole.pieces())
