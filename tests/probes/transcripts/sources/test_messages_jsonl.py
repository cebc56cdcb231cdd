from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from datetime import datetime
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest
from tplaudit.probes.errors import InputError
from tplaudit.probes.transcripts.reader import open_transcript

Write = Callable[..., Path]

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Which checks fail?"}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "run", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "two"}
ANSWER = {"role": "assistant", "content": "Two."}
TOOL = {"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}


def test_a_request_before_each_assistant_message_and_one_at_the_end(write: Write) -> None:
    path = write(SYSTEM, USER, CALL, RESULT, ANSWER, USER)
    transcript = open_transcript(path)
    first, second, third = transcript
    assert (transcript.source, transcript.dialect) == (str(path), "openai-chat")
    assert [dict(message.data) for message in first.messages] == [SYSTEM, USER]
    assert [dict(message.data) for message in second.messages] == [SYSTEM, USER, CALL, RESULT]
    assert [dict(message.data) for message in third.messages] == [SYSTEM, USER, CALL, RESULT, ANSWER, USER]
    assert [first.reply, second.reply, third.reply] == [CALL, ANSWER, None]
    assert [first.where, second.where, third.where] == [f"{path}:2", f"{path}:4", f"{path}:6"]
    assert [message.index for message in third.messages] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("role", ["user", "tool", "system", "developer", "latest_reminder"])
def test_whatever_role_but_assistant_is_last_asks_for_a_reply(write: Write, role: str) -> None:
    *_, last = open_transcript(write(USER, ANSWER, {"role": role, "content": "x"}))
    assert last.reply is None
    assert last.messages[-1].role == role


def test_two_assistant_messages_in_a_row_are_two_requests(write: Write) -> None:
    first, second = open_transcript(write(USER, ANSWER, ANSWER))
    assert [message.role for message in first.messages] == ["user"]
    assert [message.role for message in second.messages] == ["user", "assistant"]
    assert first.reply == second.reply == ANSWER


def test_an_assistant_message_that_opens_the_conversation_is_no_reply(write: Write) -> None:
    first, second = open_transcript(write(ANSWER, USER, ANSWER, USER))
    assert [message.role for message in first.messages] == ["assistant", "user"]
    assert [message.role for message in second.messages] == ["assistant", "user", "assistant", "user"]


def test_requests_share_their_messages(write: Write) -> None:
    requests = list(open_transcript(write(*[USER, ANSWER] * 10)))
    for earlier, later in pairwise(requests):
        assert all(a is b for a, b in zip(earlier.messages, later.messages, strict=False))


def test_settings_hold_until_they_are_changed(write: Write) -> None:
    requests = list(
        open_transcript(
            write(
                {"model": "m", "tools": [TOOL], "chat_template_kwargs": {"enable_thinking": True}},
                {"now": "2026-01-31T12:00:00Z"},
                USER,
                ANSWER,
                {"chat_template_kwargs": {"preserve_thinking": True}},
                USER,
                ANSWER,
                {"tools": None, "reasoning_effort": "low", "now": "2026-02-01"},
                USER,
            )
        )
    )
    assert [request.tools for request in requests] == [(TOOL,), (TOOL,), None]
    assert [dict(request.kwargs) for request in requests] == [
        {"enable_thinking": True},
        {"preserve_thinking": True},
        {"preserve_thinking": True},
    ]
    assert [request.fields.get("reasoning_effort") for request in requests] == [None, None, "low"]
    assert [request.now for request in requests] == [
        datetime.fromisoformat("2026-01-31T12:00:00+00:00"),
        datetime.fromisoformat("2026-01-31T12:00:00+00:00"),
        datetime(2026, 2, 1),
    ]
    assert [message.index for message in requests[-1].messages] == [0, 1, 2, 3, 4]


def test_a_message_may_carry_keys_that_other_formats_are_known_by(write: Write) -> None:
    noted = {**USER, "type": "message", "sessionId": "s1", "input": "x", "model_parameters": {}}
    first, _ = open_transcript(write(noted, ANSWER, noted))
    assert dict(first.messages[0].data) == noted


def test_a_partial_message_is_continued_and_loses_its_flag(write: Write) -> None:
    begun = {"role": "assistant", "content": "Tw", "partial": True}
    first, second = open_transcript(write(USER, begun, ANSWER, USER, {**begun, "partial": False}))
    assert first.partial
    assert [dict(message.data) for message in first.messages] == [
        USER,
        {"role": "assistant", "content": "Tw"},
    ]
    assert first.reply == ANSWER
    assert not second.partial
    assert second.reply == {"role": "assistant", "content": "Tw"}


def test_a_partial_message_at_the_end_is_a_request(write: Write) -> None:
    (request,) = open_transcript(write(USER, {"role": "assistant", "content": "Tw", "partial": True}))
    assert (request.partial, len(request.messages), request.reply) == (True, 2, None)


def test_reading_some_requests_reads_only_their_lines(write: Write) -> None:
    path = write(*[USER, ANSWER] * 3, "broken", *[USER, ANSWER] * 3)
    requests = iter(open_transcript(path))
    assert len(list(islice(requests, 3))) == 3
    with pytest.raises(InputError) as caught:
        next(requests)
    assert caught.value.where == f"{path}:7"


def test_a_long_conversation_is_read_fast_and_kept_small(write: Write) -> None:
    text = "x" * 2_000
    messages: list[dict[str, Any]] = []
    for turn in range(300):
        messages.append({"role": "user", "content": f"{turn} {text}"})
        messages.append({"role": "assistant", "content": f"{turn} {text}"})
    transcript = open_transcript(write(*messages))
    begin = time.process_time()
    tracemalloc.start()
    requests = list(transcript)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert time.process_time() - begin < 1
    assert len(requests) == 300
    assert len({id(message) for request in requests for message in request.messages}) == 599
    assert peak < 3 * 600 * len(text)
