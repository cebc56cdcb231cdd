"""One recorded request: a body, alone or wrapped, with or without its response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..conversation import Request
from .chat import is_partial, read_messages, read_reply, read_settings, same_text
from .unread import refuse_unknown, refuse_unread


def is_record(record: Mapping[str, Any]) -> bool:
    """Whether an object holds `messages`, or what may be a request body under `body` or `request`."""
    return "messages" in record or any(isinstance(record.get(key), dict) for key in ("body", "request"))


def read_record(record: Mapping[str, Any], previous: Request | None, where: str) -> Request:
    """Return the request that a record holds.

    Known shapes: a request body, `{custom_id, method, url, body}` as in OpenAI's batch input, and
    `{request: body}`; beside `messages` or outside the body there may be the `response` and the clock `now`.

    Args:
        record: the object as it was read.
        previous: the request before, whose messages and tools are reused where their text is the same.
        where: the place of the record to name to people.

    Raises:
        InputError: the record is of another format, or something in it is wrong.
    """
    refuse_unread(record, where)
    if not is_record(record):
        refuse_unknown(where)
    body = record
    if "messages" not in record:
        body = next(record[key] for key in ("body", "request") if isinstance(record.get(key), dict))
        refuse_unread(body, where)
    if "now" not in body and "now" in record:
        body = {**body, "now": record["now"]}
    settings = read_settings(body, where)
    messages = read_messages(body.get("messages"), previous.messages if previous else (), where)
    reply = read_reply(record.get("response", body.get("response")), where)
    request = settings.request(messages, is_partial(body["messages"][-1]), reply, where)
    if previous and same_text(previous.tools, request.tools):
        request = request.replace(tools=previous.tools)
    return request
