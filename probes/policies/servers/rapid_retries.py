"""What Rapid-MLX renders next where a template raised.

Three complaints are answered: that a system message must come first (all are joined into one), that roles
must alternate (tool history becomes text, neighbouring user turns are joined), and any TypeError (arguments
as JSON text, then fewer chat-template kwargs, then the tools as text). Where no attempt renders, the first
complaint about roles stands, but the last TypeError (docs/servers.md, section 4; raullenchai/Rapid-MLX,
rapid_mlx/utils/chat_template.py, release 0.16.10).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...conversation import TOP_LEVEL, Message, Piece, Request
from ..base import Action, Messages, Retry
from ..rewrite.part_texts import system_turn
from ..rewrite.system_turns import has_role, indices
from ..rewrite.texts import Text, content_text, cover, join, joined_contents, rebuilt
from ..rewrite.tool_arguments import with_calls

SYSTEM_FIRST = "System message must be at the beginning."
#: The server compares without regard to case; templates write the first letter either way.
ALTERNATE = "onversation roles must alternate"
TEXT_ARGUMENTS = 'can only concatenate str (not "dict") to str'
BETWEEN_TEXTS = "\n\n"


def retries(request: Request) -> tuple[Retry, ...]:
    """Return the attempts that follow the first, for each complaint of a template."""
    return (*_after_type_error(request), *_after_complaints(request))


def _after_complaints(request: Request) -> tuple[Retry, ...]:
    collapsed = _collapsed(request.messages)
    answers = [*_alternating(request)]
    if collapsed is not None:
        after = request.replace(messages=collapsed)
        systems = indices([message for message in request.messages if has_role(message, "system")])
        why = "the template wants system messages first, so the server joins all of them into one"
        action = Action("retried", systems, why)
        answers.append(Retry(after, action, text=SYSTEM_FIRST, retries=_alternating(after)))
    return tuple(answers)


def _after_type_error(request: Request) -> tuple[Retry, ...]:
    plain = _ladder(request)
    texts = tuple(_with_text_arguments(message) for message in request.messages)
    if all(old is new for old, new in zip(request.messages, texts, strict=True)):
        return (plain,)
    after = request.replace(messages=texts)
    action = Action("retried", (), "the server writes the arguments of tool calls as JSON text")
    following = (_ladder(after), *_after_complaints(after))
    first = Retry(after, action, "TypeError", TEXT_ARGUMENTS, following, final=True)
    return first, plain


def _ladder(request: Request) -> Retry:
    """Return the attempts that drop arguments of the renderer, one after the other."""
    unthinking = {key: value for key, value in request.kwargs.items() if key != "enable_thinking"}
    injected = _with_tools_as_text(request)
    last = injected.replace(kwargs=unthinking)
    why = "after a TypeError the server renders again without enable_thinking"
    tools = "after another TypeError the server writes the tools into the system message as text"
    third = _step(last, why)
    second = _step(injected, tools, third)
    return _step(request.replace(kwargs=unthinking), why, second)


def _step(request: Request, why: str, *following: Retry) -> Retry:
    """Return an attempt after a TypeError, with the further ones that follow it."""
    action = Action("retried", (), why)
    return Retry(request, action, "TypeError", retries=(*following, *_after_complaints(request)), final=True)


def _collapsed(messages: Messages) -> Messages | None:
    """Return the messages with one leading system message; None where the server does not try that."""
    systems = [message for message in messages if has_role(message, "system")]
    leading = 0
    while leading < len(messages) and has_role(messages[leading], "system"):
        leading += 1
    if len(systems) == leading or any(set(message.data) - {"role", "content"} for message in systems):
        return None
    filled = [message for message in systems if message.content]
    others = tuple(message for message in messages if not has_role(message, "system"))
    if not filled:
        return others
    if all(isinstance(message.content, str) for message in filled):
        texts = [(message, content_text(message, None, message.content)) for message in filled]
        return (system_turn(texts, BETWEEN_TEXTS), *others)
    parts, pieces = _parts_of(filled)
    first = Message({"role": "system", "content": parts}, filled[0].index)
    return (rebuilt(first, parts, pieces), *others)


def _parts_of(messages: Sequence[Message]) -> tuple[list[Any], tuple[Piece, ...]]:
    """Return the parts of several contents with a text part between two, and the origins of all."""
    parts: list[Any] = []
    pieces: list[Piece] = []
    for message in messages:
        if parts:
            pieces.append(Piece(0, message.index, len(parts)))
            parts.append({"type": "text", "text": BETWEEN_TEXTS})
        content = message.content
        pieces += (
            dataclasses.replace(piece, part=len(parts) + (piece.part or 0)) for piece in cover(message)
        )
        if isinstance(content, list):
            parts += content
        else:
            parts.append(content if isinstance(content, dict) else {"type": "text", "text": str(content)})
    return parts, tuple(pieces)


def _alternating(request: Request) -> tuple[Retry, ...]:
    """Return the answer to a template that wants users and assistants to alternate, where there is one."""
    messages = request.messages
    has_tools = any(has_role(message, "tool") for message in messages)
    after = request.replace(messages=tuple(_flattened(messages)) if has_tools else messages)
    if has_tools:
        after = _with_tools_as_text(after.replace(messages=_joined_users(after.messages)))
    else:
        after = after.replace(messages=_joined_users(messages))
    if len(after.messages) == len(messages) and all(
        one is two for one, two in zip(after.messages, messages, strict=True)
    ):
        return ()
    why = "the template wants roles to alternate, so the server joins user turns"
    if has_tools:
        why += " and writes tool calls, results and definitions as text"
    return (Retry(after, Action("retried", (), why), text=ALTERNATE),)


def _flattened(messages: Messages) -> list[Message]:
    """Return the messages with tool calls as text of the assistant, and results as text of the user."""
    output: list[Message] = []
    for message in messages:
        if has_role(message, "assistant") and isinstance(message.data.get("tool_calls"), list):
            output.append(_calls_as_text(message))
        elif has_role(message, "tool"):
            result = content_text(
                Message({"role": "user", "content": ""}, message.index), None, _result(message)
            )
            if output and has_role(output[-1], "user"):
                prior = output[-1].content or ""
                own = content_text(output[-1], None, prior if isinstance(prior, str) else str(prior))
                text = join((own, result), "\n")
                output[-1] = rebuilt(output[-1], text.text, text.pieces())
            else:
                output.append(Message({"role": "user", "content": result.text}, message.index))
        else:
            output.append(message)
    return output


def _calls_as_text(message: Message) -> Message:
    content = message.content
    lines = [content.strip()] if isinstance(content, str) and content.strip() else []
    for call in message.data["tool_calls"]:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            arguments = function.get("arguments", {})
            if not isinstance(arguments, str):
                arguments = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
            lines.append(f"Tool call {function.get('name') or 'unknown'}: {arguments}")
    data = {key: value for key, value in message.data.items() if key != "tool_calls"}
    return Message({**data, "content": "\n".join(lines)}, message.index)


def _result(message: Message) -> str:
    name = message.data.get("name") or message.data.get("tool_call_id") or "unknown"
    content = message.content
    return f"Tool result {name}: {content if isinstance(content, str) else json.dumps(content)}"


def _joined_users(messages: Messages) -> Messages:
    output: list[Message] = []
    for message in messages:
        if output and _is_plain_user(output[-1]) and _is_plain_user(message):
            output[-1] = _joined(output[-1], message)
        else:
            output.append(message)
    return tuple(output)


def _is_plain_user(message: Message) -> bool:
    return (
        has_role(message, "user")
        and message.data.keys() == {"role", "content"}
        and isinstance(message.content, str | list)
    )


def _joined(earlier: Message, later: Message) -> Message:
    if isinstance(earlier.content, str) and isinstance(later.content, str):
        return joined_contents(earlier, later, BETWEEN_TEXTS)
    return rebuilt(earlier, *_parts_of((earlier, later)))


def _with_tools_as_text(request: Request) -> Request:
    """Return a request without a tool list, its tools described in the leading system message instead."""
    if not request.tools:
        return request.replace(tools=None)
    text = _described(request.tools)
    first = request.messages[0] if request.messages else None
    if first is None or not has_role(first, "system"):
        system = Message({"role": "system", "content": text}, TOP_LEVEL)
        return request.replace(tools=None, messages=(system, *request.messages))
    if isinstance(first.content, list):
        parts = [*first.content, {"type": "text", "text": f"{BETWEEN_TEXTS}{text}"}]
        content, pieces = parts, (*cover(first), Piece(0, TOP_LEVEL, len(first.content)))
        told = rebuilt(first, content, pieces)
    else:
        own = content_text(first, None, "" if first.content is None else str(first.content))
        joined = join((own, Text(text, ((0, TOP_LEVEL),))), BETWEEN_TEXTS)
        told = rebuilt(first, joined.text, joined.pieces())
    return request.replace(tools=None, messages=(told, *request.messages[1:]))


def _described(tools: Sequence[Mapping[str, Any]]) -> str:
    lines = ["# Available Tools", ""]
    for tool in tools:
        function = tool.get("function", tool)
        parameters = function.get("parameters") or {}
        lines.append(f"## {function.get('name', 'unknown')}")
        if function.get("description"):
            lines.append(str(function["description"]))
        if parameters.get("properties"):
            lines.append(f"Parameters: {json.dumps(parameters['properties'], ensure_ascii=False)}")
        if parameters.get("required"):
            lines.append(f"Required: {json.dumps(parameters['required'])}")
        lines.append("")
    call = 'When you need to use a tool, respond with a JSON object containing "name" and "arguments" keys.'
    return "\n".join([*lines, call])


def _with_text_arguments(message: Message) -> Message:
    return with_calls(message, _text_call) if has_role(message, "assistant") else message


def _text_call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), dict):
        return call
    text = json.dumps(function["arguments"], ensure_ascii=False, separators=(",", ":"))
    return {**call, "function": {**function, "arguments": text}}
