from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tplaudit.probes.transcripts.reader import open_transcript

Write = Callable[..., Path]

DEVELOPER = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be safe."}]}
USER = {"role": "user", "content": "Which checks fail?"}
REASONING = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "I do not know."}]}
CALL = {"type": "function_call", "call_id": "c1", "name": "run", "arguments": '{"all": true}'}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "two"}
ANSWER = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Two.", "annotations": []}],
}
SEARCH = {"type": "web_search_call", "id": "w", "status": "completed"}
TOOL = {"type": "function", "name": "run", "parameters": {"type": "object"}}


def test_a_body_is_read_as_it_is(write: Write) -> None:
    items = [DEVELOPER, USER, REASONING, CALL, OUTPUT, SEARCH, ANSWER, USER]
    body = {
        "model": "m",
        "instructions": "Be brief.",
        "reasoning": {"effort": "low"},
        "tools": [TOOL, {"type": "web_search"}],
        "chat_template_kwargs": {"preserve_thinking": True},
        "now": "2026-01-31T12:00:00",
        "input": items,
        "previous_response_id": None,
    }
    path = write(body)
    transcript = open_transcript(path)
    (request,) = transcript
    assert transcript.dialect == request.dialect == "openai-responses"
    assert [dict(message.data) for message in request.messages] == items
    assert [message.index for message in request.messages] == list(range(8))
    assert request.system == "Be brief."
    assert request.tools == (TOOL, {"type": "web_search"})
    assert request.kwargs == {"preserve_thinking": True}
    assert request.now == datetime(2026, 1, 31, 12)
    assert request.fields["reasoning"] == {"effort": "low"}
    assert (request.partial, request.reply, request.where) == (False, None, f"{path}:1")


@pytest.mark.parametrize("wrapper", [None, "body", "request"])
def test_a_text_is_one_user_message(write: Write, wrapper: str | None) -> None:
    body = {"input": "Which checks fail?"}
    (request,) = open_transcript(write({wrapper: body} if wrapper else body))
    assert [dict(message.data) for message in request.messages] == [USER]
    assert request.dialect == "openai-responses"
    assert (request.system, request.tools) == (None, None)


@pytest.mark.parametrize(
    ("response", "reply"),
    [
        ({"id": "r1", "object": "response", "error": None, "output": [REASONING, ANSWER]}, ANSWER),
        ({"status_code": 200, "body": {"output": [ANSWER]}}, ANSWER),
        ({"output": [REASONING, CALL]}, None),
        ({"output": [ANSWER, CALL, ANSWER]}, None),
        ({"error": {"code": "server_error"}}, None),
        (None, None),
    ],
)
def test_the_reply_is_the_one_message_of_the_output(write: Write, response: Any, reply: Any) -> None:
    (request,) = open_transcript(write({"request": {"input": "a"}, "response": response}))
    assert request.reply == reply


def test_items_are_shared(write: Write) -> None:
    first, second = open_transcript(
        write({"input": [DEVELOPER, USER]}, {"input": [DEVELOPER, USER, REASONING, CALL, OUTPUT]})
    )
    assert all(new is old for new, old in zip(second.messages, first.messages, strict=False))
