"""One recorded request: a body, alone or wrapped, with or without its response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..conversation import Dialect, Message, Request
from ..errors import InputError
from .apis import APIS, told_by_body, told_by_path
from .checks import body_of, read_timestamp
from .responses import output_items, response_id
from .sharing import SharedMessages, sharing
from .unread import refuse_unknown, refuse_unread

#: Where a body may stand within a record: OpenAI's batch input, pairs of request and response, Anthropic's
#: message batches.
_WRAPPERS = ("body", "request", "params")


@dataclass(slots=True)
class Earlier:
    """What the reading of a transcript's earlier requests leaves for that of the next one.

    Attributes:
        dialect: the dialect of the transcript.
        request: the request before, whose values are reused where their text is the same.
        answered: for each response that has an id, the conversation up to its end.
        messages: the messages of all of them.
    """

    dialect: Dialect
    request: Request | None = None
    answered: dict[str, tuple[Message, ...]] = field(default_factory=dict)
    messages: SharedMessages = field(default_factory=SharedMessages)


def is_record(record: Mapping[str, Any]) -> bool:
    """Whether an object is a request body, or holds what may be one."""
    return _is_body(record) or _wrapper(record) is not None


def told_by_record(record: Mapping[str, Any]) -> Dialect | None:
    """Return the dialect of a record's request, or None where it could be one or the other."""
    if not _is_body(record) and _wrapper(record) == "params":
        return "anthropic-messages"
    return told_by_path(record.get("url")) or told_by_body(_unwrapped(record))


def read_record(record: Mapping[str, Any], earlier: Earlier, where: str) -> Request:
    """Return the request that a record holds.

    Known shapes: a request body, `{custom_id, method, url, body}` as in OpenAI's batch input, `{custom_id,
    params}` as in Anthropic's, and `{request: body}`; beside the messages or outside the body there may be
    the `response`, the clock `now` and the `timestamp` at which the client sent it.

    Args:
        record: the object as it was read.
        earlier: what the requests before leave; it is brought up to date.
        where: the place of the record to name to people.

    Raises:
        InputError: the record is of another format or dialect, or something in it is wrong.
    """
    refuse_unread(record, where)
    if not is_record(record):
        refuse_unknown(where)
    body = _unwrapped(record)
    refuse_unread(body, where)
    sent = read_timestamp(record.get("timestamp", body.get("timestamp")))
    body = {key: value for key, value in body.items() if key != "timestamp"}
    told = told_by_record(record)
    if told and told != earlier.dialect:
        raise InputError(
            f"this is an {APIS[told].name} request, not an {APIS[earlier.dialect].name} request",
            where=where,
            fix="keep the requests of one API in a file",
        )
    api = APIS[earlier.dialect]
    settings = api.settings(body, where)
    written = api.items(body, where)
    messages = list(_continued(body, earlier, where))
    for index, item in enumerate(written, len(messages)):
        check = partial(api.message, item, index, f"{where}, message {index}")
        messages.append(earlier.messages.read(item, index, check))
    request = settings.replace(
        messages=tuple(messages),
        partial=settings.partial or api.begins(written[-1]),
        reply=api.reply(body.get("response"), where),
        sent=sent or settings.now,
        response_id=_response_id(body, earlier.dialect),
        answered=isinstance(body_of(body.get("response")), dict),
        actual=api.actual(body.get("response")),
    )
    if earlier.request:
        request = sharing(request, earlier.request)
    earlier.request = request
    _remember(body, request, earlier, where)
    return request


def _is_body(record: Mapping[str, Any]) -> bool:
    return "messages" in record or APIS["openai-responses"].tells(record)


def _wrapper(record: Mapping[str, Any]) -> str | None:
    return next((key for key in _WRAPPERS if isinstance(record.get(key), dict)), None)


def _unwrapped(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a record's body, with `response` and `now` in it where they stand beside it."""
    if _is_body(record):
        return record
    name = _wrapper(record)
    body = record[name] if name else {}
    beside = {key: record[key] for key in ("response", "now") if key in record}
    return {**body, **beside, **({"now": body["now"]} if "now" in body else {})}


def _continued(body: Mapping[str, Any], earlier: Earlier, where: str) -> tuple[Message, ...]:
    """Return the conversation that a Responses request continues, without its earlier instructions."""
    name = body.get("previous_response_id") if earlier.dialect == "openai-responses" else None
    if name is None:
        return ()
    if not isinstance(name, str) or name not in earlier.answered:
        raise InputError(
            f"previous_response_id names a response that is not in the transcript ({name!r})",
            where=where,
            fix="keep the response, with its id and output, with each request, or send the whole input",
        )
    return earlier.answered[name]


def _response_id(body: Mapping[str, Any], dialect: Dialect) -> str | None:
    return response_id(body.get("response")) if dialect == "openai-responses" else None


def _remember(body: Mapping[str, Any], request: Request, earlier: Earlier, where: str) -> None:
    """Keep the conversation up to the end of the response, where a later request may name it."""
    name = request.response_id
    if name is not None:
        api = APIS[earlier.dialect]
        start = len(request.messages)
        items = output_items(body.get("response"), where)
        output = (api.message(item, index, f"{where}, response") for index, item in enumerate(items, start))
        earlier.answered[name] = (*request.messages, *output)
