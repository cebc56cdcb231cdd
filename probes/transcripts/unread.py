"""Formats that are known by their shape but not read: a clear refusal instead of a wrong reading."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from ..errors import InputError

_PARTS = {
    "tool_use": "Anthropic Messages",
    "tool_result": "Anthropic Messages",
    "input_text": "OpenAI Responses",
    "output_text": "OpenAI Responses",
    "input_image": "OpenAI Responses",
}

_SESSION_KEYS = {"sessionId", "leafUuid", "snapshot"}


def _is_anthropic(record: Mapping[str, Any]) -> bool:
    tools = record.get("tools")
    first = tools[0] if isinstance(tools, list) and tools else None
    return "messages" in record and (
        "system" in record or (isinstance(first, dict) and "input_schema" in first)
    )


def _is_http_log(record: Mapping[str, Any]) -> bool:
    request = record.get("request")
    return isinstance(request, dict) and "body" in request


_UNREAD: tuple[tuple[str, Callable[[Mapping[str, Any]], bool]], ...] = (
    ("an Anthropic Messages request", _is_anthropic),
    ("an OpenAI Responses request", lambda record: "input" in record and "messages" not in record),
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


def foreign_part(part: Any, where: str) -> None:
    """Raise InputError where a content part belongs to another dialect than OpenAI chat; return otherwise."""
    if isinstance(part, dict) and isinstance(part.get("type"), str) and part["type"] in _PARTS:
        _refuse(f"an {_PARTS[part['type']]} content part ({part['type']})", where)


def refuse_unknown(where: str) -> NoReturn:
    """Raise InputError for an object that is of no known format."""
    raise InputError(
        "this is neither a message (role), a request (messages) nor a document with requests",
        where=where,
        fix="write one OpenAI chat message or one chat request body on each line",
    )


def _refuse(name: str, where: str) -> NoReturn:
    raise InputError(
        f"this is {name}, a format that is not read yet",
        where=where,
        fix="convert it to OpenAI chat request bodies, one on each line",
    )
