"""The parts of an OpenAI chat request that reach a chat template, checked as servers check them."""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ..conversation import Message, Request
from ..errors import InputError
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


@dataclass(frozen=True, slots=True)
class Settings:
    """What a request says beside its messages; the fields are those of `Request`."""

    tools: tuple[Mapping[str, Any], ...] | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    now: datetime | None = None
    partial: bool = False

    def request(
        self, messages: tuple[Message, ...], partial: bool, reply: Mapping[str, Any] | None, where: str
    ) -> Request:
        """Return the request that these settings and these messages make.

        Args:
            messages: the conversation so far.
            partial: whether the last message itself asks to be continued.
            reply: the model's answer, if the transcript has it.
            where: the place to name to people.
        """
        return Request(messages, self.tools, self.kwargs, self.now, self.partial or partial, reply, where)


def read_settings(body: Mapping[str, Any], where: str) -> Settings:
    """Return the settings of a request body; unknown fields are not looked at.

    `chat_template_kwargs` is what the template gets. Two top-level fields are added to it, where it does not
    set them itself: `reasoning_effort`, which vLLM (vllm-project/vllm#54616), vllm-mlx
    (waybarrios/vllm-mlx#772), llama.cpp (ggml-org/llama.cpp#26941) and oMLX (docs/servers.md, section 1.12)
    hand to the template, and `add_generation_prompt`, where it is false and no message is continued. Any
    other top-level field, `enable_thinking` among them, is left out.

    Raises:
        InputError: a field has a type that no server accepts, or `now` is no ISO 8601 time.
    """
    kwargs = _typed(body, "chat_template_kwargs", dict, "an object", where) or {}
    continued = _typed(body, "continue_final_message", bool, "true or false", where) or False
    generation_prompt = _typed(body, "add_generation_prompt", bool, "true or false", where)
    under: dict[str, Any] = {}
    if body.get("reasoning_effort") is not None:
        under["reasoning_effort"] = body["reasoning_effort"]
    if generation_prompt is False and not continued:
        under["add_generation_prompt"] = False
    added = {key: value for key, value in under.items() if key not in kwargs}
    return Settings(_tools(body, where), {**kwargs, **added}, _now(body, where), continued)


def read_message(data: Any, index: int, where: str) -> Message:
    """Return a message of the conversation, without its `partial` flag, which servers keep from the template.

    Args:
        data: the message as the client sent it.
        index: its index in the request.
        where: the place to name to people.

    Raises:
        InputError: it is no object, has no role, or its content or tool calls have a type that servers
            refuse.
    """
    if not isinstance(data, dict):
        raise InputError(
            f"a message is {kind(data)}, not an object", where=where, fix="write {role, content}"
        )
    role = data.get("role")
    if not isinstance(role, str) or not role:
        what = f"the role of a message is {kind(role)}" if role else "a message has no role"
        raise InputError(what, where=where, fix='add "role": "user", "assistant", "system" or "tool"')
    _check_content(data.get("content"), where)
    calls = data.get("tool_calls")
    if calls is not None and not _is_list_of(calls, dict):
        raise InputError(
            "tool_calls is not a list of objects", where=where, fix="write a list, or leave it out"
        )
    if "partial" in data:
        _typed(data, "partial", bool, "true or false", where)
        data = {key: value for key, value in data.items() if key != "partial"}
    return Message(data, index)


def read_messages(items: Any, previous: tuple[Message, ...], where: str) -> tuple[Message, ...]:
    """Return a request's messages, reusing the previous request's objects where their JSON text is the same.

    A conversation's requests repeat each other, so the memory of all of them stays near that of the longest,
    and a caller can tell by identity what did not change.

    Args:
        items: the value of `messages`.
        previous: the messages of the request before, empty for the first.
        where: the place of the request to name to people.

    Raises:
        InputError: it is no list, it is empty, or one of its messages is wrong.
    """
    if not isinstance(items, list):
        raise InputError(
            f"messages is {kind(items)}, not a list", where=where, fix="write a list of messages"
        )
    if not items:
        raise InputError("messages is empty", where=where, fix="a request needs at least one message")
    messages = []
    for index, item in enumerate(items):
        message = read_message(item, index, f"{where}, message {index}")
        if index < len(previous) and same_text(previous[index].data, message.data):
            message = previous[index]
        messages.append(message)
    return tuple(messages)


def is_partial(data: Any) -> bool:
    """Whether a message asks to be continued: an assistant's with `partial: true`, the "partial mode" of
    Moonshot's API, which oMLX knows too (jundot/omlx#306)."""
    return isinstance(data, dict) and data.get("role") == "assistant" and data.get("partial") is True


def read_reply(response: Any, where: str) -> Mapping[str, Any] | None:
    """Return the assistant message of a response, or None where the response holds none.

    Args:
        response: a chat completion, a bare message, the `{status_code, body}` of OpenAI's batch output, an
            error object, or None.
        where: the place of the request to name to people.

    Raises:
        InputError: it is none of these, or its message is wrong.
    """
    if isinstance(response, dict) and isinstance(response.get("body"), dict):
        response = response["body"]
    if response is None or (isinstance(response, dict) and response.get("error")):
        return None
    match response:
        case {"choices": []}:
            return None
        case {"choices": [{"message": dict(message)}, *_]}:
            pass
        case {"role": _} | {"content": _} | {"tool_calls": _}:
            message = response
        case _:
            raise InputError(
                "the response is neither a chat completion nor a message",
                where=where,
                fix="write {choices: [{message}]} or the message, or leave it out",
            )
    if "role" not in message:
        message = {"role": "assistant", **message}
    return read_message(message, 0, f"{where}, response").data


def same_text(one: Any, other: Any) -> bool:
    """Whether two values that came from JSON have the same JSON text: key order and number types count."""
    # Version 2 of marshal's format depends on nothing but the value, and is ten times as fast as JSON.
    return one is other or marshal.dumps(one, 2) == marshal.dumps(other, 2)


def _check_content(content: Any, where: str) -> None:
    if content is None or isinstance(content, str):
        return
    if not _is_list_of(content, dict | str):
        found = "a list with other things in it" if isinstance(content, list) else kind(content)
        raise InputError(
            f"the content of a message is {found}",
            where=where,
            fix="write a string, null, or a list of parts",
        )
    for part in content:
        foreign_part(part, where)


def _tools(body: Mapping[str, Any], where: str) -> tuple[Mapping[str, Any], ...] | None:
    tools = body.get("tools")
    if tools is None:
        return None
    if not _is_list_of(tools, dict):
        raise InputError("tools is not a list of objects", where=where, fix="write a list, or leave it out")
    return tuple(tools)


def _now(body: Mapping[str, Any], where: str) -> datetime | None:
    now = _typed(body, "now", str, "an ISO 8601 time", where)
    if now is None:
        return None
    try:
        return datetime.fromisoformat(now)
    except ValueError:
        raise InputError(
            f"now is {now!r}, not an ISO 8601 time", where=where, fix='write it as "2026-01-31T12:00:00"'
        ) from None


def _typed(body: Mapping[str, Any], key: str, wanted: type, words: str, where: str) -> Any:
    value = body.get(key)
    if value is not None and not isinstance(value, wanted):
        raise InputError(f"{key} is {kind(value)}", where=where, fix=f"write {words}, or leave it out")
    return value


def _is_list_of(value: Any, wanted: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, wanted) for item in value)
