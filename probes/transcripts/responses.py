"""OpenAI Responses requests, checked as servers check them.

Their messages are the items of `input`. Where a request names the response that it continues
(`previous_response_id`), the items before it are taken from the transcript: see `record.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..conversation import ActualReuse, Message, Request
from ..errors import InputError
from .api import Api, never_begins
from .checks import (
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
    typed,
)
from .json_text import kind
from .unread import foreign_part

_ROLES = ("user", "assistant", "system", "developer")
_READ = frozenset({"input", "instructions", "tools", "chat_template_kwargs", "now", "response"})
#: Fields that name a conversation or a prompt on the server's side.
_ELSEWHERE = ("conversation", "prompt")
#: For each type of item, what it must have besides: the key, its type and the type in words.
_REQUIRED: Mapping[str, tuple[tuple[str, type, str], ...]] = {
    "function_call": (
        ("call_id", str, "a string"),
        ("name", str, "a string"),
        ("arguments", str, "a string of JSON"),
    ),
    "function_call_output": (("call_id", str, "a string"),),
    "reasoning": (("summary", list, "a list"),),
}


def _tells(body: Mapping[str, Any]) -> bool:
    return "messages" not in body and "role" not in body and isinstance(body.get("input"), str | list)


def _settings(body: Mapping[str, Any], where: str) -> Request:
    """Return what a body says beside its input.

    Raises:
        InputError: a field has a type that no server accepts, names what only a server has, or `now` is no
            ISO 8601 time.
    """
    for key in _ELSEWHERE:
        if body.get(key) is not None:
            raise InputError(
                f"{key} names what is stored on a server and is not in the transcript",
                where=where,
                fix="send the whole input instead",
            )
    return Request(
        (),
        read_tools(body, where),
        read_kwargs(body, where),
        read_now(body, where),
        where=where,
        dialect="openai-responses",
        system=typed(body, "instructions", str, "a string", where),
        fields=other_fields(body, _READ),
    )


def _items(body: Mapping[str, Any], where: str) -> list[Any]:
    text = body.get("input")
    if isinstance(text, str):
        return [{"role": "user", "content": text}]
    return read_list(body, "input", where)


def _item(data: Any, index: int, where: str) -> Message:
    data = read_object(data, "an item of input", "{role, content}", where)
    match data.get("type", "message"):
        case "message":
            read_role(data, _ROLES, where)
            _check_texts(data, "content", "a message", where)
        case "function_call_output" as type_:
            _check(data, type_, where)
            _check_texts(data, "output", "an item of type function_call_output", where)
        case "item_reference":
            raise InputError(
                "an item of type item_reference names what is stored on a server",
                where=where,
                fix="write the item itself",
            )
        case str(type_):
            _check(data, type_, where)
        case other:
            raise InputError(f"the type of an item is {kind(other)}", where=where, fix="write a string")
    return Message(data, index)


def _check(item: Mapping[str, Any], type_: str, where: str) -> None:
    for key, wanted, words in _REQUIRED.get(type_, ()):
        require(item, key, wanted, f"an item of type {type_}", f"{key} as {words}", where)


def _check_texts(item: Mapping[str, Any], key: str, what: str, where: str) -> None:
    value = item.get(key)
    if isinstance(value, str):
        return
    if not is_list_of(value, dict):
        found = "a list with other things in it" if isinstance(value, list) else kind(value)
        raise InputError(
            f"the {key} of {what} is {found}", where=where, fix="write a string or a list of parts"
        )
    for part in value:
        foreign_part(part, API.name, where)


def output_items(response: Any, where: str) -> list[Any]:
    """Return the items of a response's output, as written.

    Args:
        response: a response object, alone or as `{status_code, body}`, an error, or None.
        where: the place of the request to name to people.

    Raises:
        InputError: it is none of these.
    """
    body = body_of(response)
    if body is None:
        return []
    if not isinstance(body, dict) or not isinstance(body.get("output"), list):
        raise InputError(
            "the response is not an object with a list of output",
            where=where,
            fix="write {id, output: [...]}, or leave it out",
        )
    items: list[Any] = body["output"]
    return items


def response_id(response: Any) -> str | None:
    """Return the id of a response, or None where it has none."""
    body = body_of(response)
    named = body.get("id") if isinstance(body, dict) else None
    return named if isinstance(named, str) else None


def _reply(response: Any, where: str) -> Mapping[str, Any] | None:
    """Return the one message item of a response's output; None where there is none, or several."""
    items = [_item(item, 0, f"{where}, response").data for item in output_items(response, where)]
    messages = [item for item in items if item.get("type", "message") == "message"]
    return messages[0] if len(messages) == 1 else None


def _actual(response: Any) -> ActualReuse | None:
    """Return what a response's `usage` says of the server's reuse."""
    body = body_of(response)
    reused = read_count(body, "usage", "input_tokens_details", "cached_tokens")
    if reused is None:
        return None
    return ActualReuse(reused, read_count(body, "usage", "input_tokens"), "usage")


API = Api(
    "openai-responses",
    "OpenAI Responses",
    ("/responses",),
    _tells,
    _settings,
    _items,
    _item,
    never_begins,
    _reply,
    _actual,
)
