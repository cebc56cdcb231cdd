"""The parts of an OpenAI chat request that reach a chat template, checked as servers check them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..conversation import ActualReuse, Message, Request
from ..errors import InputError
from .api import Api
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
    read_tools,
    typed,
)
from .json_text import kind
from .unread import foreign_part

SETTINGS = frozenset(
    {
        "tools",
        "chat_template_kwargs",
        "reasoning_effort",
        "add_generation_prompt",
        "continue_final_message",
        "now",
    }
)
"""The fields of a request, beside its messages, that change what the template gets."""

_READ = frozenset({"messages", "tools", "chat_template_kwargs", "continue_final_message", "now", "response"})
_OWN_ROLES = ("tool", "developer", "function")
_OWN_PARTS = ("image_url", "input_audio")


def _tells(body: Mapping[str, Any]) -> bool:
    response = body_of(body.get("response"))
    return (
        any_has(body.get("tools"), lambda tool: "function" in tool)
        or any_has(body.get("messages"), tells_message)
        or (isinstance(response, dict) and "choices" in response)
    )


def tells_message(message: Mapping[str, Any]) -> bool:
    """Whether a message has what only OpenAI chat messages have: a role, tool calls, or a part."""
    return (
        message.get("role") in _OWN_ROLES
        or "tool_calls" in message
        or any_has(message.get("content"), lambda part: part.get("type") in _OWN_PARTS)
    )


def _settings(body: Mapping[str, Any], where: str) -> Request:
    """Return what a request body says beside its messages.

    The kwargs are `chat_template_kwargs` alone. All other fields that a server may hand to the template, as
    `reasoning_effort`, `add_generation_prompt` and `enable_thinking` are, stay as sent, for the policies.

    Raises:
        InputError: a field has a type that no server accepts, or `now` is no ISO 8601 time.
    """
    typed(body, "add_generation_prompt", bool, "true or false", where)
    return Request(
        (),
        read_tools(body, where),
        read_kwargs(body, where),
        read_now(body, where),
        typed(body, "continue_final_message", bool, "true or false", where) or False,
        where=where,
        fields=other_fields(body, _READ),
    )


def _items(body: Mapping[str, Any], where: str) -> list[Any]:
    return read_list(body, "messages", where)


def _message(data: Any, index: int, where: str) -> Message:
    """Return a message of the conversation, without its `partial` flag, which servers keep from the template.

    Raises:
        InputError: it is no object, has no role, or its content or tool calls have a type that servers
            refuse.
    """
    data = read_object(data, "a message", "{role, content}", where)
    role = data.get("role")
    if not isinstance(role, str) or not role:
        what = f"the role of a message is {kind(role)}" if role else "a message has no role"
        raise InputError(what, where=where, fix='add "role": "user", "assistant", "system" or "tool"')
    _check_content(data.get("content"), where)
    calls = data.get("tool_calls")
    if calls is not None and not is_list_of(calls, dict):
        raise InputError(
            "tool_calls is not a list of objects", where=where, fix="write a list, or leave it out"
        )
    if "partial" in data:
        typed(data, "partial", bool, "true or false", where)
        data = {key: value for key, value in data.items() if key != "partial"}
    return Message(data, index)


def _begins(message: Any) -> bool:
    """Whether a message asks to be continued: an assistant's with `partial: true`, the "partial mode" of
    Moonshot's API, which oMLX knows too (jundot/omlx#306)."""
    return isinstance(message, dict) and message.get("role") == "assistant" and message.get("partial") is True


def _reply(response: Any, where: str) -> Mapping[str, Any] | None:
    """Return the assistant message of a response, or None where the response holds none.

    Args:
        response: a chat completion, a bare message, the `{status_code, body}` of OpenAI's batch output, an
            error object, or None.
        where: the place of the request to name to people.

    Raises:
        InputError: it is none of these, or its message is wrong.
    """
    match body_of(response):
        case None | {"choices": []}:
            return None
        case {"choices": [{"message": dict(message), "token_ids": list(generated)}, *_]}:
            message = {**message, "token_ids": generated}  # vLLM's answer to return_token_ids
        case {"choices": [{"message": dict(message)}, *_]}:
            pass
        case {"role": _} | {"content": _} | {"tool_calls": _} as message:
            pass
        case _:
            raise InputError(
                "the response is neither a chat completion nor a message",
                where=where,
                fix="write {choices: [{message}]} or the message, or leave it out",
            )
    if "role" not in message:
        message = {"role": "assistant", **message}
    ids = message.get("token_ids")
    if ids is not None and not (isinstance(ids, list) and all(map(_is_token, ids))):
        raise InputError(
            "token_ids of the response is not a list of token ids",
            where=where,
            fix="write a list of numbers, or leave it out",
        )
    return _message(message, 0, f"{where}, response").data


def _actual(response: Any) -> ActualReuse | None:
    """Return what an answer says of the server's reuse: llama.cpp's `timings`, else its `usage`.

    `cache_n` are the tokens that were reused, `prompt_n` those that were computed.
    """
    body = body_of(response)
    reused, computed = read_count(body, "timings", "cache_n"), read_count(body, "timings", "prompt_n")
    if reused is not None:
        return ActualReuse(reused, None if computed is None else reused + computed, "timings")
    reused = read_count(body, "usage", "prompt_tokens_details", "cached_tokens")
    if reused is None:
        return None
    return ActualReuse(reused, read_count(body, "usage", "prompt_tokens"), "usage")


def _is_token(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _check_content(content: Any, where: str) -> None:
    if content is None or isinstance(content, str):
        return
    if not is_list_of(content, dict | str):
        found = "a list with other things in it" if isinstance(content, list) else kind(content)
        raise InputError(
            f"the content of a message is {found}",
            where=where,
            fix="write a string, null, or a list of parts",
        )
    for part in content:
        foreign_part(part, API.name, where)


API = Api(
    "openai-chat",
    "OpenAI chat",
    ("/chat/completions",),
    _tells,
    _settings,
    _items,
    _message,
    _begins,
    _reply,
    _actual,
)
