"""vLLM's `/v1/responses`: how items become chat messages.

Read and run: `vllm/entrypoints/openai/responses/utils.py`, 0.33.0 (docs/servers.md, section 10).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...conversation import TOP_LEVEL, Message, Request
from ..base import Action, Prepared
from .vllm_renderer import function_tool

_ASSISTANT = "items of one assistant turn are joined"
#: What an item says of itself when its text or reasoning was cut short and is to be continued.
_UNFINISHED = ("in_progress", "incomplete")


def convert_responses(request: Request) -> Prepared:
    """Return a Responses request in OpenAI chat form; reasoning stands under `reasoning`.

    Calls, reasoning and text join the assistant turn before them where that lacks them. Neither system nor
    developer turns are touched.
    """
    messages: list[Message] = []
    joined: list[int] = []
    if isinstance(request.system, str) and request.system:
        messages.append(Message({"role": "system", "content": request.system}, TOP_LEVEL))
    unknown = None
    for item in request.messages:
        data = _message_of(item)
        if data is None:
            unknown = unknown or item
            continue
        last = messages[-1] if messages and messages[-1].role == "assistant" else None
        if last is not None and (grown := _grown(last, data)) is not None:
            messages[-1] = grown
            joined.append(item.index)
        else:
            messages.append(item if item.data == data else Message(data, item.index))
    actions = (Action("converted", tuple(joined), _ASSISTANT),) if joined else ()
    converted = request.replace(
        messages=tuple(messages), tools=_tools(request.tools), system=None, dialect="openai-chat"
    )
    prepared = Prepared(converted, actions)
    if unknown is not None:
        encrypted = unknown.data.get("type") == "reasoning"
        why = f"unsupported input item of type {unknown.data.get('type')}"
        return prepared.refused(400, "encrypted reasoning is not supported" if encrypted else why)
    return prepared


def continues(request: Request) -> bool:
    """Return whether the last item of a Responses request is an unfinished one, which is continued."""
    last = request.messages[-1].data if request.messages else {}
    return last.get("type", "message") in ("message", "reasoning") and last.get("status") in _UNFINISHED


def _message_of(item: Message) -> dict[str, Any] | None:
    """Return an item as a chat message; None for one that the server refuses."""
    data = item.data
    kind = data.get("type")
    if kind == "function_call":
        function = {"name": data.get("name"), "arguments": data.get("arguments")}
        call = {"id": data.get("call_id"), "function": function, "type": "function"}
        return {"role": "assistant", "tool_calls": [call]}
    if kind == "custom_tool_call":
        return None
    if kind == "reasoning":
        return None if data.get("encrypted_content") else {"role": "assistant", "reasoning": _reasoning(data)}
    if kind == "function_call_output":
        return {"role": "tool", "content": data.get("output"), "tool_call_id": data.get("call_id")}
    if "role" not in data:
        return None
    if data["role"] == "assistant" and (text := _first_text(data.get("content"))) is not None:
        return {"role": "assistant", "content": text}
    return {key: value for key, value in data.items() if key != "type"}


def _reasoning(data: Mapping[str, Any]) -> str:
    """Return the first text of a reasoning item's content, else of its summary."""
    for texts in (data.get("content"), data.get("summary")):
        if isinstance(texts, list) and texts:
            return str(texts[0].get("text"))
    return ""


def _first_text(content: Any) -> str | None:
    """Return a content, or the text of its first part, which is all that the server takes of an answer."""
    if isinstance(content, list):
        content = content[0].get("text") if content and isinstance(content[0], Mapping) else None
    return content if isinstance(content, str) else None


def _grown(last: Message, data: Mapping[str, Any]) -> Message | None:
    """Return an assistant turn with what an item adds; None where that begins a turn of its own."""
    if data.get("role") != "assistant":
        return None
    if "tool_calls" in data:
        return last.replace(tool_calls=[*last.data.get("tool_calls", ()), *data["tool_calls"]])
    if "reasoning" in data:
        return last.replace(reasoning=data["reasoning"]) if last.data.get("reasoning") is None else None
    return last.replace(content=data["content"]) if last.content is None and "content" in data else None


def _tools(tools: Iterable[Mapping[str, Any]] | None) -> tuple[Mapping[str, Any], ...] | None:
    written = tuple(
        function_tool(tool, tool.get("parameters")) for tool in tools or () if tool.get("type") == "function"
    )
    return written or None
