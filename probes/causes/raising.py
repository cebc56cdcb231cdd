"""Why a template raises on a request: the message, the field, and what it renders instead."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..conversation import Message, Request
from ..errors import RenderError, RenderLimit
from ..policies.base import Policy, Prepared, render_prepared
from ..policies.registry import parse_policy
from ..templates.template import ChatTemplate
from .changes import as_written
from .settings import other_policies

#: Which way a message is changed until the template renders it: a field, what is then different, the change.
Variant = tuple[str | None, str, Callable[[Mapping[str, Any]], Mapping[str, Any] | None]]


@dataclass(frozen=True, slots=True)
class Raised:
    """Why a template raised.

    Attributes:
        line: line of the template, where known.
        message: the message without which, or with another field of which, it renders; None where none is.
        field: that field; None where the message as a whole is not accepted.
        evidence: what shows it, one sentence without a full stop.
        policies: other policies under which it renders: name, what that is, a line to paste.
        wanted: what a template would have to accept.
    """

    line: int | None
    message: Message | None
    field: str | None
    evidence: str
    policies: tuple[tuple[str, str, str | None], ...] = ()
    wanted: str | None = None


def explain_raise(
    client: Request, prepared: Prepared, error: RenderError, policy: Policy, template: ChatTemplate
) -> Raised:
    """Find what in a request a template raises on.

    Args:
        client: the request as the client sent it.
        prepared: what the policy made of it.
        error: what the template raised.
        policy: the policy.
        template: the template.
    """
    if isinstance(error, RenderLimit) or prepared.error is not None:
        return Raised(error.line, None, None, f"{policy.name} answers {error}")
    index = _first_raising(prepared, error, template)
    policies = tuple(_elsewhere(client, policy, template))
    where = f" at line {error.line}" if error.line else ""
    if index is None:
        return Raised(error.line, None, None, f"the template raises{where}", policies)
    message = prepared.request.messages[index]
    name = f"message {message.index} ({message.data.get('role')})"
    made = _made(client, message, prepared, policy)
    for field, what, change in _VARIANTS:
        changed = change(message.data)
        if changed is None or not _renders(prepared, index, changed, template):
            continue
        said = f"the template raises{where} on {name}: it renders {what}{made}"
        return Raised(error.line, message, field, said, policies, f"a template that accepts {name} as it is")
    return Raised(error.line, message, None, f"the template raises{where} on {name}{made}", policies)


def _first_raising(prepared: Prepared, error: RenderError, template: ChatTemplate) -> int | None:
    """Return the last message of the shortest beginning that raises the same, found by halving."""
    low, high = 0, len(prepared.request.messages)
    while low < high:
        middle = (low + high) // 2
        if _raises_alike(prepared, middle + 1, error, template):
            high = middle
        else:
            low = middle + 1
    return low if low < len(prepared.request.messages) else None


def _raises_alike(prepared: Prepared, count: int, error: RenderError, template: ChatTemplate) -> bool:
    beginning = prepared.request.replace(messages=prepared.request.messages[:count])
    try:
        template.render_request(beginning, profile=prepared.profile)
    except RenderError as other:
        return (other.kind, other.line) == (error.kind, error.line)
    return False


def _renders(prepared: Prepared, index: int, data: Mapping[str, Any], template: ChatTemplate) -> bool:
    messages = list(prepared.request.messages)
    messages[index : index + 1] = [Message(data, messages[index].index)] if data else []
    try:
        template.render_request(prepared.request.replace(messages=tuple(messages)), profile=prepared.profile)
    except RenderError:
        return False
    return True


def _elsewhere(
    client: Request, policy: Policy, template: ChatTemplate
) -> Iterator[tuple[str, str, str | None]]:
    """Yield the other policies under which the request renders."""
    if client.dialect != "openai-chat":
        return
    for other in other_policies(policy.name):
        try:
            render_prepared(parse_policy(other.policy).prepare(client, template), template)
        except RenderError:
            continue
        yield other.policy, other.set, other.paste


def _made(client: Request, message: Message, prepared: Prepared, policy: Policy) -> str:
    """Say what the policy had made of a message, where it made something of it."""
    sent = client.message(message.index)
    done = [
        f"{action.kind}: {action.why}"
        for action in prepared.actions
        if message.index in action.messages and action.kind != "kept"
    ]
    if done:
        return f"; {policy.name} had it {'; '.join(done)}"
    if sent is not None and as_written(sent.data) != as_written(message.data):
        keys = [key for key in message.data if message.data.get(key) != sent.data.get(key)]
        return f"; {policy.name} had written its {', '.join(keys)} otherwise than the client"
    return ""


def _arguments(convert: Callable[[Any], Any]) -> Callable[[Mapping[str, Any]], Mapping[str, Any] | None]:
    def change(data: Mapping[str, Any]) -> Mapping[str, Any] | None:
        calls = data.get("tool_calls")
        if not isinstance(calls, list | tuple):
            return None
        changed = []
        for call in calls:
            function = call.get("function") if isinstance(call, Mapping) else None
            if not isinstance(function, Mapping):
                return None
            arguments = convert(function.get("arguments"))
            if arguments is None:
                return None
            changed.append({**call, "function": {**function, "arguments": arguments}})
        return {**data, "tool_calls": changed}

    return change


def _as_text(value: Any) -> str | None:
    return None if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _as_object(value: Any) -> Any:
    if not isinstance(value, str):
        return None
    try:
        read = json.loads(value)
    except ValueError:
        return None
    return read if isinstance(read, Mapping) else None


def _content(
    value: Callable[[Mapping[str, Any]], str], wanted: Callable[[Any], bool]
) -> Callable[[Mapping[str, Any]], Mapping[str, Any] | None]:
    return lambda data: {**data, "content": value(data)} if wanted(data.get("content")) else None


def _flat(data: Mapping[str, Any]) -> str:
    parts = data.get("content") or ()
    return "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, Mapping))


def _without(key: str) -> Callable[[Mapping[str, Any]], Mapping[str, Any] | None]:
    return lambda data: {name: value for name, value in data.items() if name != key} if key in data else None


_VARIANTS: tuple[Variant, ...] = (
    ("tool_calls", "with tool-call arguments as a JSON text, not as an object", _arguments(_as_text)),
    ("tool_calls", "with tool-call arguments as an object, not as a JSON text", _arguments(_as_object)),
    ("content", "with a text as content, not null", _content(lambda data: "", lambda given: given is None)),
    ("content", "with a text as content, not a list", _content(_flat, lambda given: isinstance(given, list))),
    ("content", "with a content that is not empty", _content(lambda data: "x", lambda given: given == "")),
    ("reasoning_content", "without its reasoning", _without("reasoning_content")),
    ("tool_calls", "without its tool calls", _without("tool_calls")),
    ("tool_call_id", "without its call id", _without("tool_call_id")),
    ("role", "where its role is user", lambda data: {**data, "role": "user"}),
    ("role", "where it is left out", lambda data: {}),
)
