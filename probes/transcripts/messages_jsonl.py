"""JSONL in which each line is one message of a conversation; the requests are synthesised.

There is one request before each assistant message, which is its reply, and one at the end where another
role's message is last. An assistant message with `partial: true` is no reply but a beginning to be continued.
Where an assistant message opens the conversation there is no request before it.

A line without a role may hold settings of the requests that follow it (`tools`, `chat_template_kwargs`,
`now`, ...); each field replaces its earlier value, null takes it back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..conversation import Message, Request
from ..errors import InputError
from .base import Format
from .chat import SETTINGS, Settings, is_partial, read_message, read_settings
from .json_text import parse_object
from .source import Source
from .unread import refuse_unread

# A line of settings may be a request body without its messages, so the usual fields that no template sees may
# stand there.
_NEUTRAL = frozenset(
    {
        "model",
        "temperature",
        "top_p",
        "top_k",
        "max_tokens",
        "max_completion_tokens",
        "stream",
        "seed",
        "stop",
        "tool_choice",
        "parallel_tool_calls",
    }
)
_HEADER = (SETTINGS | _NEUTRAL) - {"continue_final_message"}
_MESSAGE = frozenset({"role", "content"})


def _claims(record: Mapping[str, Any]) -> bool:
    return not record.keys().isdisjoint(_MESSAGE | _HEADER)


def _read(source: Source) -> Iterator[Request]:
    messages: list[Message] = []
    header: dict[str, Any] = {}
    settings = Settings()
    partial = False
    asked = False
    where = source.label
    for line, text in source.lines():
        here = f"{source.label}:{line}"
        record = parse_object(text, source.label, line)
        if _is_header(record, here):
            header |= record
            settings = read_settings(header, here)
            continue
        message = read_message(record, len(messages), here)
        begins = is_partial(record)
        if message.role == "assistant" and not begins and messages:
            asked = True
            yield settings.request(tuple(messages), partial, message.data, where)
        messages.append(message)
        partial, where = begins, here
    if messages and (messages[-1].role != "assistant" or partial):
        asked = True
        yield settings.request(tuple(messages), partial, None, where)
    if not asked:
        raise InputError(
            "no request can be made of these lines",
            where=source.label,
            fix="add a user message before the reply",
        )


def _is_header(record: Mapping[str, Any], where: str) -> bool:
    if not record.keys().isdisjoint(_MESSAGE):
        return False
    refuse_unread(record, where)
    if "messages" in record:
        raise InputError(
            "this is a request among lines that are messages",
            where=where,
            fix="keep one kind of line in a file",
        )
    unknown = record.keys() - _HEADER
    if record.keys() <= unknown:
        return False
    if unknown:
        raise InputError(
            f"{', '.join(sorted(unknown))} is no setting that reaches a template",
            where=where,
            fix=f"a line of settings holds {', '.join(sorted(SETTINGS & _HEADER))}",
        )
    return True


FORMAT = Format("messages_jsonl", "openai-chat", _claims, _read)
