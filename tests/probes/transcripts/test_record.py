"""What a line may hold around a request, and what it may take from the lines before it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tplaudit.probes.conversation import ActualReuse
from tplaudit.probes.transcripts.reader import open_transcript

REASONING = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "I do not know."}]}
CALL = {"type": "function_call", "call_id": "c1", "name": "run", "arguments": '{"all": true}'}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "two"}
ANSWER = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Two.", "annotations": []}],
}

Write = Callable[..., Path]

USER = {"role": "user", "content": "Which checks fail?"}

TOOL = {"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}
BODY = {"messages": [USER], "tools": [TOOL], "chat_template_kwargs": {"enable_thinking": False}}


@pytest.mark.parametrize(
    "record",
    [
        BODY,
        {"custom_id": "r1", "method": "POST", "url": "/v1/chat/completions", "body": BODY},
        {"request": BODY},
        {"request": BODY, "response": None},
    ],
    ids=["body", "batch", "request", "request and response"],
)
def test_every_shape_of_a_line_gives_the_same_request(write: Write, record: dict[str, Any]) -> None:
    path = write(record)
    (request,) = open_transcript(path)
    assert [dict(message.data) for message in request.messages] == [USER]
    assert request.tools == (TOOL,)
    assert request.kwargs == {"enable_thinking": False}
    assert (request.now, request.partial, request.reply) == (None, False, None)
    assert request.where == f"{path}:1"


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_clock(write: Write, wrapped: bool) -> None:
    now = {"now": "2026-01-31T12:00:00+01:00"}
    (request,) = open_transcript(write({"request": BODY, **now} if wrapped else {**BODY, **now}))
    assert request.now == datetime.fromisoformat("2026-01-31T12:00:00+01:00")


def test_a_request_continues_a_response_of_the_transcript(write: Write) -> None:
    path = write(
        {
            "instructions": "Be brief.",
            "input": [USER],
            "response": {"id": "r1", "output": [REASONING, CALL]},
        },
        {
            "body": {"previous_response_id": "r1", "input": [OUTPUT]},
            "response": {"status_code": 200, "body": {"id": "r2", "output": [ANSWER]}},
        },
        {"previous_response_id": "r1", "input": [{**OUTPUT, "output": "three"}]},
        {"previous_response_id": "r2", "input": "Bye"},
    )
    first, second, other, last = open_transcript(path)
    bye = {"role": "user", "content": "Bye"}
    whole = [USER, REASONING, CALL, OUTPUT, ANSWER, bye]
    assert [dict(message.data) for message in last.messages] == whole
    assert [message.index for message in last.messages] == list(range(6))
    assert [dict(message.data) for message in other.messages] == [*whole[:3], {**OUTPUT, "output": "three"}]
    assert (first.system, second.system) == ("Be brief.", None)
    for earlier, later in pairwise([first, second, last]):
        assert all(new is old for new, old in zip(later.messages, earlier.messages, strict=False))


def _answer(**usage: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": "Two."}}], **usage}


def _message(**usage: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Two."}], **usage}


CHAT, MESSAGES = {"messages": [USER]}, {"system": "Be brief.", "messages": [USER]}
RESPONSES = {"input": "Which checks fail?"}
CACHED = {"prompt_tokens": 90, "prompt_tokens_details": {"cached_tokens": 64}}


@pytest.mark.parametrize(
    ("body", "response", "said"),
    [
        (CHAT, _answer(usage=CACHED), ActualReuse(64, 90, "usage")),
        (CHAT, {"status_code": 200, "body": _answer(usage=CACHED)}, ActualReuse(64, 90, "usage")),
        (
            CHAT,
            _answer(usage=CACHED, timings={"cache_n": 60, "prompt_n": 30, "prompt_ms": 4.5}),
            ActualReuse(60, 90, "timings"),
        ),
        (CHAT, _answer(timings={"cache_n": 60}), ActualReuse(60, None, "timings")),
        (CHAT, _answer(usage={"prompt_tokens_details": {"cached_tokens": 0}}), ActualReuse(0, None, "usage")),
        (
            MESSAGES,
            _message(usage={"input_tokens": 20, "cache_read_input_tokens": 64, "output_tokens": 3}),
            ActualReuse(64, 84, "usage"),
        ),
        (
            MESSAGES,
            _message(
                usage={"input_tokens": 2, "cache_read_input_tokens": 64, "cache_creation_input_tokens": 18}
            ),
            ActualReuse(64, 84, "usage"),
        ),
        (
            RESPONSES,
            {
                "output": [ANSWER],
                "usage": {"input_tokens": 90, "input_tokens_details": {"cached_tokens": 64}},
            },
            ActualReuse(64, 90, "usage"),
        ),
    ],
)
def test_what_an_answer_says_of_the_servers_reuse(
    body: dict[str, Any], response: dict[str, Any], said: ActualReuse, write: Write
) -> None:
    (request,) = open_transcript(write({"request": body, "response": response}))
    assert request.answered
    assert request.actual == said


@pytest.mark.parametrize("count", [None, "64", -1, 6.5, True, [64], {"n": 64}])
def test_a_number_of_another_type_is_no_number(count: Any, write: Write) -> None:
    """None of them is an error: what answers say beside the reply is no one's business but ours."""
    usage = {"prompt_tokens": 90, "prompt_tokens_details": {"cached_tokens": count}}
    records = [
        {"request": CHAT, "response": _answer(usage=usage, timings={"cache_n": count})},
        {"request": CHAT, "response": _answer(usage=count, timings=count)},
        {"request": CHAT, "response": _answer(usage={"prompt_tokens_details": count})},
        {"request": CHAT, "response": None},
    ]
    requests = list(open_transcript(write(*records)))
    assert [request.actual for request in requests] == [None] * 4
    assert [request.answered for request in requests] == [True] * 3 + [False]
    usage = {"prompt_tokens": count, "prompt_tokens_details": {"cached_tokens": 64}}
    (request,) = open_transcript(write({"request": CHAT, "response": _answer(usage=usage)}))
    assert request.actual == ActualReuse(64, None, "usage")
