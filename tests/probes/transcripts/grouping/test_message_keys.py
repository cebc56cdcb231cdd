from __future__ import annotations

import json
from typing import Any

import pytest
from tplaudit.probes.conversation import Message, Request
from tplaudit.probes.transcripts.grouping.conversations import (
    Continuation,
    continuations,
    ids_of,
)


def _request(messages: list[dict[str, Any]], **more: Any) -> Request:
    return Request(tuple(Message(message, at) for at, message in enumerate(messages)), **more)


def _found(*requests: Request) -> tuple[Continuation, ...]:
    return continuations(requests)


def _call(command: str, id_: str = "c1") -> dict[str, Any]:
    function = {"name": "run", "arguments": json.dumps({"cmd": command})}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": id_, "function": function}]}


def _result(text: str, id_: str = "c1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": text}


def test_what_a_client_makes_anew_does_not_count() -> None:
    first = [{"role": "user", "content": "Go."}, _call("ls", "a1"), _result("x", "a1")]
    again = [
        {"role": "user", "content": [{"type": "text", "text": "Go."}]},
        _call("ls", "b2"),
        _result("x", "b2"),
    ]
    found = _found(_request(first), _request([*again, _call("cd"), _result("y")]))
    assert (found[1].predecessor, found[1].relation) == (1, "appended")


def test_ids_within_a_calls_arguments_count() -> None:
    def called(id_: str) -> dict[str, Any]:
        function = {"name": "get", "arguments": {"id": id_}}
        return {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}

    user = {"role": "user", "content": "Go."}
    found = _found(_request([user, called("a")]), _request([user, called("b"), _result("x")]))
    assert found[1].relation != "appended"


@pytest.mark.parametrize(
    "fields",
    [
        {"session_id": "one"},
        {"metadata": {"agent-id": "one"}},
        {"client_metadata": {"thread_id": "one"}},
        {"metadata": {"user_id": "user_1_account__session_0f0f0f0f-1111-2222-3333-444444444444"}},
        {"metadata": {"user_id": '{"device_id": "d", "session_id": "one"}'}},
    ],
)
def test_ids_name_a_group(fields: dict[str, Any]) -> None:
    assert ids_of(_request([], fields=fields))
    start = [{"role": "user", "content": "Go."}]
    longer = [*start, _call("ls"), _result("a b c")]
    found = _found(_request(start, fields=fields), _request(longer), _request(longer, fields=fields))
    assert [each.predecessor for each in found] == [None, None, 1]


def test_a_clock_in_the_top_level_system_text() -> None:
    user = {"role": "user", "content": "Mend it."}
    found = _found(
        _request([user], system="You mend parsers. It is 10:00."),
        _request([user, _call("ls"), _result("x")], system="You mend parsers. It is 10:01."),
    )
    assert (found[1].predecessor, found[1].relation, found[1].changed) == (1, "appended", ("system",))


def test_the_billing_line_does_not_count() -> None:
    def system(number: int) -> list[dict[str, Any]]:
        line = f"x-anthropic-billing-header: cc_version=2.1; cch={number};"
        return [{"type": "text", "text": line}, {"type": "text", "text": "You mend."}]

    user = {"role": "user", "content": "Mend it."}
    found = _found(
        _request([user], system=system(1)), _request([user, _call("ls"), _result("x")], system=system(2))
    )
    assert (found[1].predecessor, found[1].changed) == (1, ())
