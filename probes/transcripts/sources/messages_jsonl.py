"""JSONL in which each line is one message of a conversation; the requests are synthesised.

There is one request before each assistant message, which is its reply, and one at the end where another
role's message is last. An assistant message with `partial: true` is no reply but a beginning to be continued.
Where an assistant message opens the conversation there is no request before it.

A line without a role may hold settings of the requests that follow it (`tools`, `chat_template_kwargs`,
`now`, ...); each field replaces its earlier value, null takes it back. The messages are OpenAI chat messages,
or Anthropic messages where one of the first lines says so: by `{"dialect": "anthropic-messages"}`, by a
setting that only that API has, or by such a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...conversation import Dialect, Message, Request
from ...errors import InputError
from .. import anthropic_messages, chat
from ..apis import APIS, first_told, told_by_body
from ..base import Format
from ..json_text import parse_object
from ..source import Source
from ..unread import refuse_unread

_SETTINGS: Mapping[Dialect, frozenset[str]] = {
    "openai-chat": chat.SETTINGS - {"continue_final_message"},
    "anthropic-messages": anthropic_messages.SETTINGS,
}
"""For each dialect whose messages may be written one per line, the settings that a line may hold."""

# A line of settings may be a request body without its messages, so the usual fields that no template sees may
# stand there.
_NEUTRAL = frozenset(
    {
        "dialect",
        "model",
        "temperature",
        "top_p",
        "top_k",
        "max_tokens",
        "max_completion_tokens",
        "stream",
        "seed",
        "stop",
        "stop_sequences",
        "metadata",
        "tool_choice",
        "parallel_tool_calls",
    }
)
_MESSAGE = frozenset({"role", "content"})
_CLAIMED = _NEUTRAL.union(_MESSAGE, *_SETTINGS.values())


def _claims(record: Mapping[str, Any]) -> bool:
    return not record.keys().isdisjoint(_CLAIMED)


def _dialect(source: Source) -> Dialect:
    return first_told(_told(source))


def _told(source: Source) -> Iterator[Dialect | None]:
    """Yield what each line tells of its dialect, up to the first that cannot be read."""
    try:
        for line, text in source.lines():
            yield _told_by_line(parse_object(text, source.label, line))
    except InputError:
        return


def _told_by_line(record: Mapping[str, Any]) -> Dialect | None:
    named = next((dialect for dialect in _SETTINGS if record.get("dialect") == dialect), None)
    told = named or told_by_body(record if record.keys().isdisjoint(_MESSAGE) else {"messages": [record]})
    return told if told in _SETTINGS else None


def _read(source: Source, dialect: Dialect) -> Iterator[Request]:
    api = APIS[dialect]
    messages: list[Message] = []
    header: dict[str, Any] = {}
    settings = api.settings(header, source.label)
    partial = False
    asked = False
    where = source.label
    for line, text in source.lines():
        here = f"{source.label}:{line}"
        record = parse_object(text, source.label, line)
        if _is_header(record, dialect, here):
            header |= record
            given = {key: value for key, value in header.items() if key != "dialect" and value is not None}
            settings = api.settings(given, here)
            continue
        message = api.message(record, len(messages), here)
        begins = api.begins(record)
        if message.role == "assistant" and not begins and messages:
            asked = True
            yield _request(settings, messages, partial, message.data, where)
        messages.append(message)
        partial, where = begins, here
    if messages and (messages[-1].role != "assistant" or partial):
        asked = True
        yield _request(settings, messages, partial, None, where)
    if not asked:
        raise InputError(
            "no request can be made of these lines",
            where=source.label,
            fix="add a user message before the reply",
        )


def _request(
    settings: Request, messages: list[Message], partial: bool, reply: Mapping[str, Any] | None, where: str
) -> Request:
    return settings.replace(
        messages=tuple(messages), partial=settings.partial or partial, reply=reply, where=where
    )


def _is_header(record: Mapping[str, Any], dialect: Dialect, where: str) -> bool:
    if not record.keys().isdisjoint(_MESSAGE):
        return False
    refuse_unread(record, where)
    if "messages" in record:
        raise InputError(
            "this is a request among lines that are messages",
            where=where,
            fix="keep one kind of line in a file",
        )
    known = _SETTINGS[dialect] | _NEUTRAL
    unknown = record.keys() - known
    if record.keys() <= unknown:
        return False
    named = record.get("dialect", dialect)
    if named != dialect:
        raise InputError(
            f"the dialect {named!r} is named among {APIS[dialect].name} messages",
            where=where,
            fix=f"write {' or '.join(_SETTINGS)} on the first line, or leave it out",
        )
    if unknown:
        raise InputError(
            f"{', '.join(sorted(unknown))} is not a setting that reaches a template",
            where=where,
            fix=f"a line of settings holds {', '.join(sorted(_SETTINGS[dialect]))}",
        )
    return True


FORMAT = Format("messages_jsonl", _claims, _dialect, _read)
