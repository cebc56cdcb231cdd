"""Anthropic Messages requests, checked as servers check them.

`role: system` may stand among the messages, as Claude Code sends it. `cache_control`, which marks where
Anthropic's own cache shall end and moves with every request, is left out of blocks and tools: no server of
docs/servers.md hands it to a template, and with it the same message would differ from request to request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..conversation import ActualReuse, Message, Request
from ..errors import InputError
from .api import Api, never_begins
from .checks import (
    any_has,
    body_of,
    is_list_of,
    other_fields,
    read_count,
    read_kwargs,
    read_list,
    read_now,
    read_object,
    read_role,
    read_tools,
    require,
)
from .json_text import kind
from .unread import foreign_part

SETTINGS = frozenset({"tools", "system", "thinking", "output_config", "chat_template_kwargs", "now"})
"""The fields of a request, beside its messages, that may change what a template gets."""

_ROLES = ("user", "assistant", "system")
_READ = frozenset({"messages", "system", "tools", "chat_template_kwargs", "now", "response"})
_OWN_FIELDS = ("system", "stop_sequences", "anthropic_version")
#: For each type of block, what it must have besides: the key, its type and the type in words.
_REQUIRED: Mapping[str, tuple[tuple[str, type, str], ...]] = {
    "text": (("text", str, "a string"),),
    "thinking": (("thinking", str, "a string"),),
    "redacted_thinking": (("data", str, "a string"),),
    "tool_use": (("id", str, "a string"), ("name", str, "a string"), ("input", dict, "an object")),
    "tool_result": (("tool_use_id", str, "a string"),),
    "image": (("source", dict, "an object"),),
    "document": (("source", dict, "an object"),),
}


def _tells(body: Mapping[str, Any]) -> bool:
    response = body_of(body.get("response"))
    return (
        any(key in body for key in _OWN_FIELDS)
        or any_has(body.get("tools"), lambda tool: "input_schema" in tool)
        or any_has(body.get("messages"), tells_message)
        or (isinstance(response, dict) and response.get("type") == "message")
    )


def tells_message(message: Mapping[str, Any]) -> bool:
    """Whether a message has what only Anthropic messages have: certain blocks, or a source in a block."""
    return any_has(message.get("content"), _tells_block)


def _tells_block(block: Mapping[str, Any]) -> bool:
    match block:
        case {"type": "tool_use" | "tool_result" | "redacted_thinking"}:
            return True
        case {"type": "thinking", "signature": str()}:
            return True
        case {"type": "image" | "document", "source": dict()}:
            return True
        case _:
            return False


def _settings(body: Mapping[str, Any], where: str) -> Request:
    """Return what a body says beside its messages.

    Raises:
        InputError: a field has a type that no server accepts, or `now` is no ISO 8601 time.
    """
    tools = read_tools(body, where)
    for number, tool in enumerate(tools or ()):
        require(tool, "name", str, "a tool", "{name, input_schema}", f"{where}, tool {number}")
    return Request(
        (),
        None if tools is None else tuple(_uncached(tool) for tool in tools),
        read_kwargs(body, where),
        read_now(body, where),
        where=where,
        dialect="anthropic-messages",
        system=_system(body.get("system"), where),
        fields=other_fields(body, _READ),
    )


def _system(system: Any, where: str) -> Any:
    if system is None or isinstance(system, str):
        return system
    texts = is_list_of(system, dict) and all(block.get("type") == "text" for block in system)
    if not texts:
        found = "a list with other things in it" if isinstance(system, list) else kind(system)
        raise InputError(
            f"system is {found}", where=where, fix="write a string or a list of text blocks, or leave it out"
        )
    return _blocks(system, f"{where}, system")


def _items(body: Mapping[str, Any], where: str) -> list[Any]:
    return read_list(body, "messages", where)


def _message(data: Any, index: int, where: str) -> Message:
    data = read_object(data, "a message", "{role, content}", where)
    read_role(data, _ROLES, where)
    content = data.get("content")
    if isinstance(content, str):
        return Message(data, index)
    if not isinstance(content, list):
        what = f"the content of a message is {kind(content)}"
        raise InputError(what, where=where, fix="write a string or a list of blocks")
    return Message({**data, "content": _blocks(content, where)}, index)


def _blocks(blocks: list[Any], where: str) -> list[Any]:
    return [_block(block, where) for block in blocks]


def _block(block: Any, where: str) -> Mapping[str, Any]:
    block = read_object(block, "a content block", "{type, ...}", where)
    require(block, "type", str, "a content block", '{"type": "text", "text": "..."}', where)
    foreign_part(block, API.name, where)
    for key, wanted, words in _REQUIRED.get(block["type"], ()):
        require(block, key, wanted, f"a block of type {block['type']}", f"{key} as {words}", where)
    if block["type"] == "tool_result" and block.get("content") is not None:
        content = block["content"]
        if isinstance(content, list):
            block = {**block, "content": _blocks(content, where)}
        elif not isinstance(content, str):
            what = f"the content of a block of type tool_result is {kind(content)}"
            raise InputError(what, where=where, fix="write a string or a list of blocks")
    return _uncached(block)


def _uncached(block: Mapping[str, Any]) -> Mapping[str, Any]:
    return other_fields(block, frozenset({"cache_control"})) if "cache_control" in block else block


def _reply(response: Any, where: str) -> Mapping[str, Any] | None:
    """Return role and content of a response: a message object of the API, or a bare message."""
    body = body_of(response)
    if body is None:
        return None
    if not isinstance(body, dict) or "content" not in body:
        raise InputError(
            "the response is not an Anthropic message",
            where=where,
            fix="write {role, content}, or leave it out",
        )
    message = {"role": body.get("role", "assistant"), "content": body["content"]}
    return _message(message, 0, f"{where}, response").data


def _actual(response: Any) -> ActualReuse | None:
    """Return what a message's `usage` says of the server's reuse.

    `input_tokens` are those that were neither read from the cache nor written to it, as in Anthropic's API.
    """
    body = body_of(response)
    reused, new = (
        read_count(body, "usage", "cache_read_input_tokens"),
        read_count(body, "usage", "input_tokens"),
    )
    if reused is None:
        return None
    written = read_count(body, "usage", "cache_creation_input_tokens") or 0
    return ActualReuse(reused, None if new is None else reused + written + new, "usage")


API = Api(
    "anthropic-messages",
    "Anthropic Messages",
    ("/messages",),
    _tells,
    _settings,
    _items,
    _message,
    never_begins,
    _reply,
    _actual,
)
