"""SGLang's `/v1/responses`: how items become chat messages (`serving_responses.py`, 0.5.23)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ...conversation import TOP_LEVEL, Message, Request
from ..base import Action, Messages, Prepared, Rewrite
from ..rewrite.part_texts import merge_into_first, part_texts
from ..rewrite.role_merge import joined_turns
from ..rewrite.system_turns import has_role, join_neighbours
from ..rewrite.texts import Text, part_text

LABEL = "Developer instructions:"
_LEFT_OUT = ("id", "status", "type")


def convert_responses(request: Request) -> Prepared:
    """Return a Responses request in OpenAI chat form: neighbouring assistant items are one turn."""
    messages: list[Message] = []
    actions: list[Action] = []
    unknown = ""
    if isinstance(request.system, str) and request.system:
        messages.append(Message({"role": "system", "content": request.system}, TOP_LEVEL))
    for item in request.messages:
        kind = item.data.get("type")
        if kind not in (None, "message", "function_call", "function_call_output", "reasoning"):
            unknown = unknown or str(kind)
            continue
        data = _message_of(item)
        if data is None:
            actions.append(Action("dropped", (item.index,), "reasoning without text"))
            continue
        if item.data.get("role") == "developer":
            why = f"the role developer becomes system, its text behind {LABEL!r}"
            actions.append(Action("converted", (item.index,), why))
        messages.append(item if data == item.data else Message(data, item.index))
    tools = _tools(request.tools)
    converted = request.replace(messages=tuple(messages), tools=tools, system=None, dialect="openai-chat")
    done = Prepared(converted, tuple(actions)).then(_joined_assistants)
    return done.refused(400, f"unsupported input item of type {unknown}") if unknown else done


def joined_in_front(messages: Messages) -> Rewrite:
    """Join all system texts in front, by an empty line."""
    return merge_into_first(messages, _all_texts, "\n\n", "moved into the first system message")


def _all_texts(message: Message, leads: bool) -> list[Text]:
    return part_texts(message)


def _message_of(item: Message) -> dict[str, Any] | None:
    """Return an item as a chat message; None for reasoning without text."""
    data = item.data
    kind = data.get("type")
    if kind == "function_call":
        function = {"name": data.get("name"), "arguments": _arguments(data.get("arguments"))}
        call = {"id": data.get("call_id") or data.get("id"), "type": "function", "function": function}
        return {"role": "assistant", "tool_calls": [call]}
    if kind == "function_call_output":
        output = data.get("output", "")
        if isinstance(output, list):
            output = "".join(str(part.get("text", "")) for part in output if isinstance(part, Mapping))
        return {"role": "tool", "tool_call_id": data.get("call_id"), "content": output}
    if kind == "reasoning":
        texts = _texts(data.get("summary")) or _texts(data.get("content"))
        return {"role": "assistant", "reasoning_content": "\n".join(texts)} if texts else None
    message = {key: value for key, value in data.items() if value is not None and key not in _LEFT_OUT}
    content = message.get("content")
    if isinstance(content, list):
        message["content"] = [_part(part) for part in content]
    return _labelled(message) if data.get("role") == "developer" else message


def _labelled(message: dict[str, Any]) -> dict[str, Any]:
    """Return a developer's message as a system message, its first text behind a label."""
    content = message.get("content")
    if isinstance(content, str):
        content = f"{LABEL}\n{content}"
    elif isinstance(content, list):
        content = list(content)
        at = next((n for n, part in enumerate(content) if part_text(part) is not None), None)
        if at is None:
            content.insert(0, {"type": "text", "text": LABEL})
        else:
            content[at] = {"type": "text", "text": f"{LABEL}\n{part_text(content[at])}"}
    return {**message, "role": "system", "content": content}


def _part(part: Any) -> Any:
    if isinstance(part, Mapping) and part.get("type") in ("input_text", "output_text"):
        return {"type": "text", "text": part.get("text", "")}
    return part


def _texts(parts: Any) -> list[str]:
    known = parts if isinstance(parts, list) else []
    return [str(part["text"]) for part in known if isinstance(part, Mapping) and part.get("text")]


def _arguments(arguments: Any) -> Any:
    """Return arguments that are no JSON object as an empty one."""
    try:
        parsed = json.loads(arguments)
    except (ValueError, TypeError, RecursionError):
        parsed = None
    return arguments if isinstance(parsed, dict) else "{}"


def _joined_assistants(messages: Messages) -> Rewrite:
    return join_neighbours(messages, _joined)


def _joined(earlier: Message, later: Message) -> Message | None:
    """Return two assistant turns as one, with the calls and the reasoning of both; None for others."""
    if not (has_role(earlier, "assistant") and has_role(later, "assistant")):
        return None
    if earlier.data.get("phase") != later.data.get("phase") and set(earlier.data) != {
        "role",
        "reasoning_content",
    }:
        return None
    new = later.data
    turn = joined_turns(earlier, later) or earlier
    if new.get("phase") is not None:
        turn = turn.replace(phase=new["phase"])
    if new.get("tool_calls"):
        turn = turn.replace(tool_calls=[*turn.data.get("tool_calls", ()), *new["tool_calls"]])
    if new.get("reasoning_content"):
        reasoning = [each for each in (turn.data.get("reasoning_content"), new["reasoning_content"]) if each]
        turn = turn.replace(reasoning_content="\n".join(reasoning))
    return turn


def _tools(tools: Iterable[Mapping[str, Any]] | None) -> tuple[Mapping[str, Any], ...] | None:
    written = []
    for tool in tools or ():
        if tool.get("type") == "function":
            function = {"name": tool.get("name"), "description": tool.get("description")}
            function |= {"parameters": tool.get("parameters"), "strict": bool(tool.get("strict"))}
            written.append({"type": "function", "function": function})
    return tuple(written) or None
