"""Which API the requests of a transcript are written for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tplaudit.probes.transcripts.reader import open_transcript

Write = Callable[..., Path]

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

TOOL = {"name": "run", "description": "Runs.", "input_schema": {"type": "object"}}


@pytest.mark.parametrize(
    "own",
    [
        {"system": "Be brief."},
        {"stop_sequences": ["x"]},
        {"tools": [TOOL]},
        {"messages": [USER, CALL]},
        {"messages": [USER, {"role": "assistant", "content": CALL["content"][:1]}]},
        {"messages": [RESULT]},
        {"messages": [{"role": "user", "content": RESULT["content"][1:2]}]},
        {"messages": [{"role": "user", "content": RESULT["content"][2:3]}]},
        {"response": {"type": "message", "role": "assistant", "content": []}},
    ],
)
def test_what_tells_the_dialect(write: Write, own: dict[str, Any]) -> None:
    assert open_transcript(write({"messages": [USER], **own})).dialect == "anthropic-messages"


@pytest.mark.parametrize(
    "body", [{"messages": [USER]}, {"messages": [USER], "thinking": {"type": "enabled"}}]
)
def test_what_does_not_tell_it_is_read_as_chat(write: Write, body: dict[str, Any]) -> None:
    assert open_transcript(write(body)).dialect == "openai-chat"


def test_short_requests_at_the_beginning_are_of_the_dialect_that_follows(write: Write) -> None:
    quota = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "quota"}]}
    path = write(quota, quota, {"messages": [USER], "system": "Be brief."})
    assert [request.dialect for request in open_transcript(path)] == ["anthropic-messages"] * 3


def test_only_the_beginning_is_looked_at(write: Write) -> None:
    path = write(*[{"messages": [USER]}] * 200, {"messages": [USER], "system": "Be brief."})
    assert open_transcript(path).dialect == "openai-chat"


def test_what_cannot_be_read_further_on_is_told_when_it_is_reached(write: Write) -> None:
    requests = iter(open_transcript(write({"messages": [USER]}, "broken")))
    assert next(requests).dialect == "openai-chat"


def test_the_address_of_a_batch_tells_it_too(write: Write) -> None:
    record = {"custom_id": "1", "method": "POST", "url": "http://h/v1/messages?beta=true"}
    (request,) = open_transcript(write({**record, "body": {"messages": [USER]}}))
    assert request.dialect == "anthropic-messages"
