"""Formats that are known by their shape but not read: a clear refusal instead of a wrong reading."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from ..errors import InputError

#: Types of content parts, or blocks, that only one API has, and what to do where another one is read.
_PARTS = {
    "tool_use": "Anthropic Messages",
    "tool_result": "Anthropic Messages",
    "redacted_thinking": "Anthropic Messages",
    "input_text": "OpenAI Responses",
    "output_text": "OpenAI Responses",
    "input_image": "OpenAI Responses",
    "image_url": "OpenAI chat",
}
_FIXES = {
    "Anthropic Messages": 'write the line {"dialect": "anthropic-messages"} before Anthropic messages',
    "OpenAI Responses": "write whole request bodies with their input, one on each line",
    "OpenAI chat": "keep what was sent to one API in a file",
}

_SESSION_KEYS = {"sessionId", "leafUuid", "snapshot"}


def _is_http_log(record: Mapping[str, Any]) -> bool:
    request = record.get("request")
    return isinstance(request, dict) and "body" in request


_UNREAD: tuple[tuple[str, Callable[[Mapping[str, Any]], bool]], ...] = (
    ("a Codex rollout", lambda record: {"timestamp", "type", "payload"} <= record.keys()),
    (
        "a Claude Code session",
        lambda record: "type" in record and not _SESSION_KEYS.isdisjoint(record),
    ),
    ("a log of HTTP exchanges", _is_http_log),
    ("a HAR archive", lambda record: isinstance(record.get("log"), dict) and "entries" in record["log"]),
    ("a LiteLLM log", lambda record: "model_parameters" in record),
    ("a ShareGPT conversation", lambda record: "conversations" in record),
    ("an ATIF trajectory", lambda record: "schema_version" in record and "steps" in record),
)


def refuse_unread(record: Mapping[str, Any], where: str) -> None:
    """Raise InputError where a record has the shape of a format that is not read yet; return otherwise.

    An object with a role is a chat message, whatever else its writer keeps in it.
    """
    if "role" in record:
        return
    for name, recognises in _UNREAD:
        if recognises(record):
            _refuse(name, where)


def foreign_part(part: Any, api: str, where: str) -> None:
    """Raise InputError where a content part, or block, belongs to another API; return otherwise.

    Args:
        part: the part as written.
        api: the name of the API whose messages are read.
        where: the place of the message to name to people.
    """
    type_ = part.get("type") if isinstance(part, dict) else None
    other = _PARTS.get(type_, api) if isinstance(type_, str) else api
    if other != api:
        raise InputError(
            f"this is an {other} content part ({type_}) in an {api} request", where=where, fix=_FIXES[other]
        )


def refuse_unknown(where: str) -> NoReturn:
    """Raise InputError for an object that is of no known format."""
    raise InputError(
        "this is neither a message (role), a request (messages, input) nor a document with requests",
        where=where,
        fix="write one message or one request body on each line",
    )


def _refuse(name: str, where: str) -> NoReturn:
    raise InputError(
        f"this is {name}, a format that is not read yet",
        where=where,
        fix="convert it to request bodies, one on each line",
    )
