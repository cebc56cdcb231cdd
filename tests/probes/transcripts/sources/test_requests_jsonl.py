from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from tplaudit.probes.errors import InputError
from tplaudit.probes.transcripts.reader import open_transcript

Write = Callable[..., Path]

USER = {"role": "user", "content": "Which checks fail?"}
ANSWER = {"role": "assistant", "content": "Two.", "reasoning_content": "style, types"}
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


@pytest.mark.parametrize(
    ("response", "reply"),
    [
        ({"choices": [{"index": 0, "message": ANSWER}]}, ANSWER),
        ({"status_code": 200, "body": {"choices": [{"message": ANSWER}]}}, ANSWER),
        (ANSWER, ANSWER),
        ({"content": "Two."}, {"role": "assistant", "content": "Two."}),
        ({"choices": []}, None),
        ({"error": {"message": "too long"}}, None),
        (None, None),
    ],
    ids=["completion", "batch", "message", "message without role", "no choice", "error", "null"],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_the_reply(write: Write, response: Any, reply: Any, wrapped: bool) -> None:
    record = {"request": BODY, "response": response} if wrapped else {**BODY, "response": response}
    (request,) = open_transcript(write(record))
    assert request.reply == reply


@pytest.mark.parametrize(
    ("fields", "kwargs"),
    [
        ({"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
        ({"reasoning_effort": None}, {}),
        ({"reasoning_effort": "low", "chat_template_kwargs": {"x": 1}}, {"x": 1, "reasoning_effort": "low"}),
        (
            {"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "high"}},
            {"reasoning_effort": "high"},
        ),
        ({"chat_template_kwargs": None, "enable_thinking": False, "temperature": 0.5}, {}),
        ({"add_generation_prompt": True}, {}),
        ({"add_generation_prompt": False}, {"add_generation_prompt": False}),
        ({"add_generation_prompt": False, "continue_final_message": True}, {}),
    ],
)
def test_what_the_template_is_given(write: Write, fields: dict[str, Any], kwargs: dict[str, Any]) -> None:
    (request,) = open_transcript(write({"messages": [USER], **fields}))
    assert request.kwargs == kwargs


def test_continued_requests(write: Write) -> None:
    begun = {"role": "assistant", "content": "Tw"}
    requests = open_transcript(
        write(
            {"messages": [USER, begun], "continue_final_message": True, "add_generation_prompt": False},
            {"messages": [USER, {**begun, "partial": True}]},
            {"messages": [USER, {**begun, "partial": True}, USER]},
            {"messages": [USER, begun], "continue_final_message": False},
        )
    )
    assert [request.partial for request in requests] == [True, True, False, False]
    assert all("partial" not in message.data for request in requests for message in request.messages)


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_clock(write: Write, wrapped: bool) -> None:
    now = {"now": "2026-01-31T12:00:00+01:00"}
    (request,) = open_transcript(write({"request": BODY, **now} if wrapped else {**BODY, **now}))
    assert request.now == datetime.fromisoformat("2026-01-31T12:00:00+01:00")


def test_messages_and_tools_are_shared_where_their_text_is_the_same(write: Write) -> None:
    reordered = {"content": "Which checks fail?", "role": "user"}
    number: dict[str, Any] = {**USER, "weight": 1}
    requests = list(
        open_transcript(
            write(
                {"messages": [USER, number], "tools": [TOOL]},
                {"messages": [USER, number, ANSWER], "tools": [TOOL]},
                {
                    "messages": [reordered, {**number, "weight": 1.0}, ANSWER],
                    "tools": [{**TOOL, "type": "f"}],
                },
                {"messages": [USER, {**number, "weight": True}, ANSWER]},
            )
        )
    )
    first, second, third, fourth = (request.messages for request in requests)
    assert second[0] is first[0]
    assert second[1] is first[1]
    assert third[0] is not second[0]
    assert list(third[0].data) == ["content", "role"]
    assert third[1] is not second[1]
    assert json.dumps(third[1].data["weight"]) == "1.0"
    assert third[2] is second[2]
    assert list(fourth[0].data) == ["role", "content"]
    assert fourth[1].data["weight"] is True
    assert requests[1].tools is requests[0].tools
    assert requests[2].tools == ({**TOOL, "type": "f"},)
    assert requests[3].tools is None


def test_reading_some_requests_reads_only_their_lines(write: Write) -> None:
    path = write(BODY, BODY, BODY, "broken")
    requests = iter(open_transcript(path))
    assert len(list(islice(requests, 3))) == 3
    with pytest.raises(InputError) as caught:
        next(requests)
    assert caught.value.where == f"{path}:4"


def test_memory_follows_the_conversation_not_the_file(write: Write) -> None:
    messages = [{"role": "user", "content": f"{index} " + "x" * 3_000} for index in range(60)]
    path = write(*({"messages": messages[: end + 1]} for end in range(60)))
    tracemalloc.start()
    requests = list(open_transcript(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(requests) == 60
    assert path.stat().st_size > 5_000_000
    assert peak < 1_500_000


@pytest.mark.parametrize(
    "response",
    [
        {"choices": [{"message": ANSWER, "token_ids": [5, 6]}]},
        {"choices": [{"message": {**ANSWER, "token_ids": [5, 6]}}]},
        {**ANSWER, "token_ids": [5, 6]},
    ],
    ids=["choice", "its message", "bare message"],
)
def test_generated_ids_stand_in_the_reply(write: Write, response: Any) -> None:
    (request,) = open_transcript(write({**BODY, "response": response}))
    assert request.reply == {**ANSWER, "token_ids": [5, 6]}


@pytest.mark.parametrize("ids", [["5"], [-1], "5", [1.5], [2**31], [True]])
def test_generated_ids_that_are_none(write: Write, ids: Any) -> None:
    with pytest.raises(InputError, match="token_ids of the response"):
        list(open_transcript(write({**BODY, "response": {**ANSWER, "token_ids": ids}})))
