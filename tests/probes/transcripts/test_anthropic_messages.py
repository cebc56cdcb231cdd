from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tplaudit.probes.transcripts.reader import open_transcript

Write = Callable[..., Path]

SYSTEM = [{"type": "text", "text": "x-anthropic-billing-header: a"}, {"type": "text", "text": "Be brief."}]
USER = {"role": "user", "content": "Which checks fail?"}
CALL: dict[str, Any] = {
    "role": "assistant",
    "content": [
        {"type": "thinking", "thinking": "I do not know.", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "c1", "name": "run", "input": {"all": True}},
    ],
}
RESULT: dict[str, Any] = {
    "role": "user",
    "content": [
        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "two"}]},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "log"}},
        {"type": "search_result", "source": "https://example.org", "title": "t", "content": []},
    ],
}
REMINDER = {"role": "system", "content": "<total_tokens>9 tokens left</total_tokens>"}
ANSWER = {"role": "assistant", "content": [{"type": "text", "text": "Two."}]}
TOOL = {"name": "run", "description": "Runs.", "input_schema": {"type": "object"}}


def test_a_body_is_read_as_it_is(write: Write) -> None:
    messages = [USER, CALL, RESULT, REMINDER]
    body = {
        "model": "m",
        "max_tokens": 10,
        "thinking": {"type": "enabled", "budget_tokens": 5},
        "system": SYSTEM,
        "tools": [TOOL],
        "chat_template_kwargs": {"preserve_thinking": True},
        "now": "2026-01-31T12:00:00",
        "messages": messages,
    }
    path = write(body)
    transcript = open_transcript(path)
    (request,) = transcript
    assert transcript.dialect == request.dialect == "anthropic-messages"
    assert [dict(message.data) for message in request.messages] == messages
    assert [message.index for message in request.messages] == [0, 1, 2, 3]
    assert request.system == SYSTEM
    assert request.tools == (TOOL,)
    assert request.kwargs == {"preserve_thinking": True}
    assert request.now == datetime(2026, 1, 31, 12)
    assert request.fields == {"model": "m", "max_tokens": 10, "thinking": body["thinking"]}
    assert (request.partial, request.reply, request.where) == (False, None, f"{path}:1")


def test_a_message_batch_is_a_document_of_requests(write: Write) -> None:
    batch = {"requests": [{"custom_id": "1", "params": {"model": "m", "messages": [USER]}}]}
    transcript = open_transcript(write(batch, name="batch.json"))
    (request,) = transcript
    assert transcript.dialect == request.dialect == "anthropic-messages"
    assert request.fields == {"model": "m"}


@pytest.mark.parametrize(
    ("response", "reply"),
    [
        ({"id": "m1", "type": "message", "model": "m", "stop_reason": "end_turn", **ANSWER}, ANSWER),
        ({"status_code": 200, "body": {"type": "message", **ANSWER}}, ANSWER),
        ({"content": "Two."}, {"role": "assistant", "content": "Two."}),
        ({"type": "error", "error": {"type": "overloaded_error"}}, None),
        (None, None),
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_the_reply(write: Write, response: Any, reply: Any, wrapped: bool) -> None:
    body = {"system": "Be brief.", "messages": [USER]}
    record = {"request": body, "response": response} if wrapped else {**body, "response": response}
    (request,) = open_transcript(write(record))
    assert request.reply == reply
    assert request.fields == {}


def test_marks_of_anthropics_cache_are_left_out(write: Write) -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    text = {"type": "text", "text": "a"}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [{**text, **mark}], **mark}
    body = {
        "system": [{**text, **mark}],
        "tools": [{**TOOL, **mark}],
        "messages": [{"role": "user", "content": [result, {**text, **mark}]}],
    }
    (request,) = open_transcript(write(body))
    assert "cache_control" not in repr(request)
    bare = {"type": "tool_result", "tool_use_id": "c1", "content": [text]}
    assert request.messages[0].content == [bare, text]
    assert request.system == [text]
    assert request.tools == (TOOL,)


def test_messages_system_blocks_and_tools_are_shared(write: Write) -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    marked = {**RESULT, "content": [*RESULT["content"][:-1], {**RESULT["content"][-1], **mark}]}
    other = [{"type": "text", "text": "x-anthropic-billing-header: b"}, SYSTEM[1], SYSTEM[1]]
    first, second = open_transcript(
        write(
            {"system": SYSTEM, "tools": [TOOL], "messages": [USER, CALL, marked]},
            {"system": other, "tools": [TOOL], "messages": [USER, CALL, RESULT, ANSWER, USER]},
        )
    )
    assert all(new is old for new, old in zip(second.messages, first.messages, strict=False))
    assert second.tools is first.tools
    assert second.system == other
    assert second.system[1] is first.system[1]


def test_memory_follows_the_conversation_not_the_file(write: Write) -> None:
    system = [{"type": "text", "text": "x" * 20_000}]
    messages = [
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c", "content": f"{n} " + "x" * 3_000}],
        }
        for n in range(60)
    ]
    path = write(*({"system": system, "messages": messages[: end + 1]} for end in range(60)))
    tracemalloc.start()
    requests = list(open_transcript(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(requests) == 60
    assert path.stat().st_size > 6_000_000
    assert peak < 1_500_000


# One message per line


@pytest.mark.parametrize(
    "before",
    [
        [{"dialect": "anthropic-messages"}],
        [{"system": "Be brief."}],
        [{"tools": [TOOL]}],
        [],
    ],
)
def test_messages_on_lines(write: Write, before: list[dict[str, Any]]) -> None:
    path = write(*before, USER, CALL, RESULT, REMINDER, ANSWER, USER)
    transcript = open_transcript(path)
    assert transcript.dialect == "anthropic-messages"
    first, second, third = transcript
    assert [dict(message.data) for message in third.messages] == [USER, CALL, RESULT, REMINDER, ANSWER, USER]
    assert [first.reply, second.reply, third.reply] == [CALL, ANSWER, None]
    assert {request.dialect for request in transcript} == {"anthropic-messages"}
    assert all(a is b for a, b in zip(first.messages, third.messages, strict=False))
    assert "dialect" not in first.fields


def test_settings_on_lines_hold_until_they_are_changed(write: Write) -> None:
    thinking = {"type": "enabled"}
    path = write(
        {"dialect": "anthropic-messages", "system": SYSTEM, "thinking": thinking, "max_tokens": 10},
        USER,
        ANSWER,
        {"system": "Be kind.", "thinking": None, "tools": [TOOL]},
        USER,
    )
    first, second = open_transcript(path)
    assert (first.system, first.tools) == (SYSTEM, None)
    assert first.fields == {"thinking": thinking, "max_tokens": 10}
    assert (second.system, second.tools) == ("Be kind.", (TOOL,))
    assert second.fields == {"max_tokens": 10}


def test_lines_that_could_be_either_are_chat_messages(write: Write) -> None:
    assert open_transcript(write(USER, ANSWER, USER)).dialect == "openai-chat"
