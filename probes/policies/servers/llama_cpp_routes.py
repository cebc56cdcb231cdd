"""llama.cpp's own conversions: Anthropic messages and Responses items as chat messages.

Texts stay lists of parts; llama_cpp.py changes what a template does not take in that form. What the server
refuses is an error here (tools/server/server-chat.cpp, tools/server/server-common.cpp and common/chat.cpp of
ggml-org/llama.cpp at b11434).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ...conversation import TOP_LEVEL, Message, Piece, Request
from ..api.anthropic_route import image_part
from ..base import Action, Messages, Prepared
from ..rewrite.system_turns import has_role
from ..rewrite.texts import cover, rebuilt

#: The types of parts that are no text and that a model may take.
MEDIA = ("image_url", "input_audio", "input_video", "video_url")
_BILLING = re.compile(r"^(x-anthropic-billing-header:.*?cch=).{5}(?=;)", re.DOTALL)
_INPUT_ROLES = ("user", "system", "developer")

Part = dict[str, Any]


class _Refused(Exception):
    """The server answers with an error instead of rendering."""


def steady_billing_header(text: str) -> str:
    """Return a system text whose billing header, if it begins with one, is the same for every request."""
    return _BILLING.sub(r"\1fffff", text, count=1)


def as_llama_chat(request: Request) -> Prepared:
    """Return a request in OpenAI chat form as the server parses it, with what it refuses as an error."""
    routes = {"anthropic-messages": _from_anthropic, "openai-responses": _from_responses}
    convert = routes.get(request.dialect)
    start = Prepared(request)
    try:
        if convert is not None:
            start = Prepared(request.replace(messages=(), system=None, dialect="openai-chat"))
            start = Prepared(
                request.replace(messages=tuple(convert(request)), system=None, dialect="openai-chat")
            )
            start = _told(request, start)
        _check(start.request.messages)
    except _Refused as error:
        start = start.refused(400, str(error))
    kept = tuple(map(_kept, start.request.messages))
    tools = _tools(request)
    return Prepared(start.request.replace(messages=kept, tools=tools), start.actions, error=start.error)


def _told(request: Request, start: Prepared) -> Prepared:
    """Return a converted request with an action for what became of its messages."""
    made = start.request.messages
    actions = []
    if made and made[0].index == TOP_LEVEL:
        actions.append(
            Action("converted", (TOP_LEVEL,), "the top-level system text becomes the first message")
        )
    there = {index for message in made for index in message.origins}
    if lost := tuple(message.index for message in request.messages if message.index not in there):
        actions.append(Action("dropped", lost, "no content that the server takes"))
    given = {message.index: message.data for message in request.messages}
    changed = [index for index in given if index in there and not _stands(index, given[index], made)]
    if changed:
        actions.append(Action("converted", tuple(changed), "becomes a chat message"))
    return Prepared(start.request, tuple(actions))


def _stands(index: int, data: Any, made: Messages) -> bool:
    return any(message.index == index and message.data == data for message in made)


# Anthropic messages


def _from_anthropic(request: Request) -> Iterable[Message]:
    if request.system is not None:
        blocks = (
            request.system if isinstance(request.system, list) else [{"type": "text", "text": request.system}]
        )
        texts = (
            steady_billing_header(str(block.get("text") or "")) for block in blocks if _is(block, "text")
        )
        yield Message({"role": "system", "content": "".join(texts)}, TOP_LEVEL)
    for message in request.messages:
        if isinstance(message.content, list):
            yield from _turns(message)
        elif "content" in message.data or not has_role(message, "assistant"):
            yield message


def _is(block: Any, kind: str) -> bool:
    return isinstance(block, Mapping) and block.get("type") == kind


def _turns(message: Message) -> Iterable[Message]:
    """Yield what a message of blocks becomes: a turn of its texts, calls and reasoning, then each result."""
    content: list[Part] = []
    calls: list[dict[str, Any]] = []
    results: list[Message] = []
    reasoning = ""
    for block in message.content:
        if _is(block, "text"):
            content.append(dict(block))
        elif _is(block, "thinking"):
            reasoning += str(block.get("thinking") or "")
        elif _is(block, "image") and (part := image_part(block)):
            content.append(part)
        elif _is(block, "tool_use"):
            function = {"name": block.get("name") or "", "arguments": _dump(block.get("input") or {})}
            calls.append({"id": block.get("id") or "", "type": "function", "function": function})
        elif _is(block, "tool_result"):
            result = {"role": "tool", "tool_call_id": block.get("tool_use_id") or ""}
            results.append(Message({**result, "content": _result(block.get("content"))}, message.index))
    if content or calls or reasoning:
        data: dict[str, Any] = {"role": message.data.get("role"), "content": content or ""}
        data |= {"tool_calls": calls} if calls else {}
        data |= {"reasoning_content": reasoning} if reasoning else {}
        yield Message(data, message.index)
    yield from results


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _result(content: Any) -> Any:
    """Return a tool result as a text, or as parts where it has an image."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    texts = [
        {"type": "text", "text": str(part.get("text") or "")} if _is(part, "text") else part
        for part in content
    ]
    parts = [
        part if _is(part, "text") else image_part(part) if _is(part, "image") else None for part in texts
    ]
    known = [part for part in parts if part is not None]
    if all(_is(part, "text") for part in known):
        return "".join(part["text"] for part in known)
    return known


# Responses items


def _from_responses(request: Request) -> Iterable[Message]:
    if request.fields.get("previous_response_id"):
        raise _Refused("llama.cpp does not support 'previous_response_id'.")
    messages: list[Message] = []
    if request.system is not None:
        messages.append(Message({"role": "system", "content": request.system}, TOP_LEVEL))
    for item in request.messages:
        _add(messages, item)
    return messages


def _add(messages: list[Message], item: Message) -> None:
    """Add an item to the messages so far; what an assistant says in several items is one turn."""
    data, content, kind = item.data, item.content, item.data.get("type")
    role = data.get("role")
    if isinstance(content, str):
        content = [{"type": "input_text", "text": content}]
    if isinstance(content, list) and role in _INPUT_ROLES:
        kept = {key: value for key, value in data.items() if key not in ("type", "status")}
        messages.append(Message({**kept, "content": [_input_part(part) for part in content]}, item.index))
    elif role == "assistant" and kind == "message":
        parts = [_output_part(part) for part in content] if isinstance(content, list) else []
        _speak(messages, item, content=parts)
    elif kind == "function_call":
        function = {"name": data.get("name"), "arguments": data.get("arguments")}
        _speak(messages, item, call={"function": function, "id": data.get("call_id"), "type": "function"})
    elif kind == "function_call_output" and isinstance(output := data.get("output"), str | list):
        result = output if isinstance(output, str) else [_input_part(part) for part in output]
        turn = {"role": "tool", "tool_call_id": data.get("call_id"), "content": result}
        messages.append(Message(turn, item.index))
    elif kind == "reasoning" and isinstance(data.get("summary"), list):
        first = content[0] if isinstance(content, list) and content else None
        if not isinstance(first, Mapping) or not isinstance(first.get("text"), str):
            raise _Refused("item['content'] is not an array, or has no text")
        _speak(messages, item, reasoning=first["text"])
    else:
        raise _Refused("Cannot determine type of 'item'")


def _speak(
    messages: list[Message],
    item: Message,
    content: list[Part] | None = None,
    call: dict[str, Any] | None = None,
    reasoning: str | None = None,
) -> None:
    """Add to the assistant turn that is last, or to a new one."""
    if not messages or not has_role(messages[-1], "assistant"):
        messages.append(Message({"role": "assistant"} | ({} if call else {"content": []}), item.index))
    last = messages[-1]
    if call is not None:
        last = last.replace(tool_calls=[*last.data.get("tool_calls", []), call])
    if reasoning is not None:
        last = last.replace(reasoning_content=reasoning)
    if content is not None:
        before = last.content if isinstance(last.content, list) else []
        pieces = cover(last) if before else ()
        added = tuple(Piece(0, item.index, len(before) + number) for number in range(len(content)))
        last = rebuilt(last, [*before, *content], (*pieces, *added))
    messages[-1] = last


def _input_part(part: Any) -> Part:
    if _is(part, "input_text") and "text" in part:
        return {"type": "text", "text": part["text"]}
    if _is(part, "input_image") and "image_url" in part:
        return {"type": "image_url", "image_url": {"url": part["image_url"]}}
    raise _Refused("'type' must be one of 'input_text', 'input_image', or 'input_file'")


def _output_part(part: Any) -> Part:
    written = _is(part, "output_text") or _is(part, "input_text")
    if written and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    raise _Refused("'type' must be one of 'output_text' or 'refusal'")


# Chat messages


def _check(messages: Messages) -> None:
    for message in messages:
        data = message.data
        assistant = has_role(message, "assistant")
        if "content" not in data and not (assistant and "tool_calls" in data):
            raise _Refused("All non-assistant messages must contain 'content'")
        if not isinstance(message.content, str | list | None):
            raise _Refused("Expected 'content' to be a string or an array")
        for part in message.content if isinstance(message.content, list) else ():
            if not isinstance(part, Mapping) or part.get("type") not in ("text", *MEDIA):
                raise _Refused("unsupported content[].type")
            if _is(part, "text") and not isinstance(part.get("text"), str):
                raise _Refused("Failed to parse messages: a part of type text without text")
        for call in calls if isinstance(calls := data.get("tool_calls"), list) else ():
            function = call.get("function") if _is(call, "function") else None
            if not isinstance(function, Mapping) or "arguments" not in function:
                raise _Refused("Failed to parse messages: a tool call without type, function or arguments")
        for key in ("reasoning_content", "name", "tool_call_id"):
            if not isinstance(data.get(key, ""), str):
                raise _Refused(f"Failed to parse messages: {key} must be a string")


def _kept(message: Message) -> Message:
    """Return a message with the keys that the server reads; a missing content is an empty text."""
    data = message.data
    content = message.content or ""
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, Mapping)]
        content = [_text_part(part) if _is(part, "text") else part for part in parts] or ""
    kept: dict[str, Any] = {"role": data.get("role"), "content": content}
    kept |= {key: data[key] for key in ("reasoning_content", "name", "tool_call_id") if data.get(key)}
    calls = data.get("tool_calls")
    if isinstance(calls, list) and calls:
        kept["tool_calls"] = [_call(call) for call in calls]
    return message if kept == data else Message(kept, message.index, message.pieces if content else ())


def _text_part(part: Mapping[str, Any]) -> Part:
    return {"type": "text", "text": part.get("text")}


def _call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return call
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else _dump(arguments)
    kept = {"type": "function", "function": {"name": function.get("name"), "arguments": text}}
    return {**kept, "id": call["id"]} if call.get("id") else kept


def _tools(request: Request) -> tuple[Mapping[str, Any], ...] | None:
    """Return tools with name, description and parameters only; None for none."""
    functions: list[Any] = []
    for tool in request.tools or ():
        if request.dialect == "anthropic-messages":
            functions.append({**tool, "parameters": tool.get("input_schema", {})})
        elif request.dialect == "openai-chat":
            functions.append(tool.get("function"))
        elif tool.get("type") == "function":
            functions.append(tool)
    return (
        tuple(
            {
                "type": "function",
                "function": {
                    "name": function.get("name"),
                    "description": function.get("description") or "",
                    "parameters": function.get("parameters", {}),
                },
            }
            for function in functions
            if isinstance(function, Mapping)
        )
        or None
    )
