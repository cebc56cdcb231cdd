"""Requests of OpenAI's chat API."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tplaudit.probes.errors import InputError
from tplaudit.probes.policies.api.plain_chat import plain_chat
from tplaudit.probes.transcripts.reader import open_transcript

Write = Callable[..., Path]

USER = {"role": "user", "content": "Which checks fail?"}

ANSWER = {"role": "assistant", "content": "Two.", "reasoning_content": "style, types"}
TOOL = {"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}

BODY = {"messages": [USER], "tools": [TOOL], "chat_template_kwargs": {"enable_thinking": False}}


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
        ({}, {}),
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
    own = fields.get("chat_template_kwargs")
    assert request.kwargs == (own or {}), "a reader decides nothing for a server"
    read = {"chat_template_kwargs", "continue_final_message"}
    assert request.fields == {key: value for key, value in fields.items() if key not in read}
    assert plain_chat(request).request.kwargs == kwargs


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
