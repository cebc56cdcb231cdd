"""Steps that several servers take after their system turns are placed (docs/servers.md, sections 4 to 8)."""

from __future__ import annotations

from dataclasses import replace

from ...conversation import Message, Request
from ..base import Action, Messages, Prepared, Rewrite
from .part_texts import part_texts
from .reasoning import thinking_type
from .system_turns import done, has_role
from .texts import join, rebuilt


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


def extract_text(messages: Messages) -> Rewrite:
    """Return messages as the engines of Rapid-MLX and vllm-mlx for text models have them.

    Content lists become one text, their texts joined by newlines; of the keys, only role, content, and what
    ties tool calls to their results is kept.
    """
    output = tuple(_extracted(message) for message in messages)
    lost = [old for old, new in zip(messages, output, strict=True) if set(old.data) - set(new.data)]
    made = [old for old, new in zip(messages, output, strict=True) if old.content != new.content]
    keys = sorted({key for message in lost for key in message.data} - _KEPT)
    why = f"the server leaves out its keys: {', '.join(keys)}"
    converted = done("converted", made, "its content becomes one text")
    return Rewrite(output, converted + done("dropped", lost, why))


_KEPT = frozenset({"role", "content", "tool_calls", "tool_call_id"})


def _extracted(message: Message) -> Message:
    data = {"role": message.data.get("role"), "content": message.content}
    if has_role(message, "tool"):
        data["tool_call_id"] = message.data.get("tool_call_id") or ""
    elif has_role(message, "assistant") and message.data.get("tool_calls"):
        data["tool_calls"] = message.data["tool_calls"]
    if isinstance(message.content, str):
        return message if data == message.data else Message(data, message.index, message.pieces)
    text = join(part_texts(message), "\n")
    return rebuilt(Message(data, message.index, message.pieces), text.text, text.pieces())
