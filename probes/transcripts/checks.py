"""Checks that the APIs share: types of fields, lists of messages, tools, the clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeGuard

from ..errors import InputError
from .json_text import kind


def typed(body: Mapping[str, Any], key: str, wanted: type, words: str, where: str) -> Any:
    """Return a field that may be absent or null.

    Args:
        body: the object that may have it.
        key: its name.
        wanted: its type.
        words: the type in words, after "write".
        where: the place to name to people.

    Raises:
        InputError: it has another type.
    """
    value = body.get(key)
    if value is not None and not isinstance(value, wanted):
        raise InputError(f"{key} is {kind(value)}", where=where, fix=f"write {words}, or leave it out")
    return value


def is_list_of(value: Any, wanted: Any) -> TypeGuard[list[Any]]:
    """Tell whether a value is a list, all of whose items have a type."""
    return isinstance(value, list) and all(isinstance(item, wanted) for item in value)


def read_count(value: Any, *keys: str) -> int | None:
    """Return a count that stands in objects within objects; None where there is none, or something else.

    Args:
        value: the outermost object, which may be any JSON value.
        keys: the names on the way to the count.
    """
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if type(value) is int and value >= 0 else None


def any_has(items: Any, test: Callable[[Mapping[str, Any]], bool]) -> bool:
    """Tell whether a value is a list with an object that passes a test."""
    return isinstance(items, list) and any(isinstance(item, dict) and test(item) for item in items)


def read_list(body: Mapping[str, Any], key: str, where: str) -> list[Any]:
    """Return the list of a request's messages, as written.

    Raises:
        InputError: it is no list, or it is empty.
    """
    items = body.get(key)
    if not isinstance(items, list):
        raise InputError(f"{key} is {kind(items)}, not a list", where=where, fix="write a list of messages")
    if not items:
        raise InputError(f"{key} is empty", where=where, fix="a request needs at least one message")
    return items


def read_kwargs(body: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Return the `chat_template_kwargs` of a body. Raises InputError where they are no object."""
    kwargs: Mapping[str, Any] = typed(body, "chat_template_kwargs", dict, "an object", where) or {}
    return kwargs


def read_tools(body: Mapping[str, Any], where: str) -> tuple[Mapping[str, Any], ...] | None:
    """Return the tools of a body, or None where it has none. Raises InputError where they are no objects."""
    tools = body.get("tools")
    if tools is None:
        return None
    if not is_list_of(tools, dict):
        raise InputError("tools is not a list of objects", where=where, fix="write a list, or leave it out")
    return tuple(tools)


def read_now(body: Mapping[str, Any], where: str) -> datetime | None:
    """Return the clock that a body sets, or None. Raises InputError where it is no ISO 8601 time."""
    now = typed(body, "now", str, "an ISO 8601 time", where)
    if now is None:
        return None
    try:
        return datetime.fromisoformat(now)
    except ValueError:
        raise InputError(
            f"now is {now!r}, not an ISO 8601 time", where=where, fix='write it as "2026-01-31T12:00:00"'
        ) from None


def read_timestamp(value: Any) -> datetime | None:
    """Return a time that a log wrote, ISO 8601 or seconds or milliseconds since 1970; None for anything else.

    A time without a zone counts as UTC.
    """
    try:
        if isinstance(value, str):
            read = datetime.fromisoformat(value)
            return read if read.tzinfo else read.replace(tzinfo=UTC)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def read_object(data: Any, what: str, write: str, where: str) -> dict[str, Any]:
    """Return a value that must be an object.

    Args:
        data: the value.
        what: what it is, such as `a message`.
        write: what to write instead, such as `{role, content}`.
        where: the place to name to people.

    Raises:
        InputError: it is none.
    """
    if not isinstance(data, dict):
        raise InputError(f"{what} is {kind(data)}, not an object", where=where, fix=f"write {write}")
    return data


def read_role(data: Mapping[str, Any], roles: tuple[str, ...], where: str) -> str:
    """Return a message's role.

    Args:
        data: the message.
        roles: those that the API knows.
        where: the place to name to people.

    Raises:
        InputError: it has none, or another one.
    """
    role = data.get("role")
    *others, last = (f'"{each}"' for each in roles)
    known = f"{', '.join(others)} or {last}"
    if not isinstance(role, str) or not role:
        what = f"the role of a message is {kind(role)}" if role else "a message has no role"
        raise InputError(what, where=where, fix=f'add "role": {known}')
    if role not in roles:
        what = f"a message has the role {role!r}, which this API does not know"
        raise InputError(what, where=where, fix=f"write {known}")
    return role


def body_of(response: Any) -> Any:
    """Return a response's body, alone or as `{status_code, body}`; None for an error or no response."""
    if isinstance(response, dict) and isinstance(response.get("body"), dict):
        response = response["body"]
    return None if isinstance(response, dict) and response.get("error") else response


def other_fields(body: Mapping[str, Any], known: frozenset[str]) -> Mapping[str, Any]:
    """Return the fields of a body that are read neither as messages nor as settings."""
    return {key: value for key, value in body.items() if key not in known}


def require(data: Mapping[str, Any], key: str, wanted: type, what: str, words: str, where: str) -> None:
    """Check a field that must be there.

    Args:
        data: the object that must have it.
        key: its name.
        wanted: its type.
        what: what the object is, such as `a text block`.
        words: the type in words, after "write".
        where: the place to name to people.

    Raises:
        InputError: it is missing or has another type.
    """
    if not isinstance(data.get(key), wanted):
        found = f"the {key} of {what} is {kind(data[key])}" if key in data else f"{what} has no {key}"
        raise InputError(found, where=where, fix=f"write {words}")
