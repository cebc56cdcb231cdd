"""What continues what: real recordings, short sequences, and random interleavings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tplaudit.probes.conversation import Message, Request
from tplaudit.probes.transcripts.grouping.conversations import Continuation, Conversations, continuations
from tplaudit.probes.transcripts.reader import open_transcript

from tests.recordings import NAMES, SESSIONS, answers, sequences, unpack


def _request(messages: list[dict[str, Any]], **more: Any) -> Request:
    return Request(tuple(Message(message, at) for at, message in enumerate(messages)), **more)


def _found(*requests: Request) -> tuple[Continuation, ...]:
    return continuations(requests)


def _call(command: str, id_: str = "c1") -> dict[str, Any]:
    function = {"name": "run", "arguments": json.dumps({"cmd": command})}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": id_, "function": function}]}


def _result(text: str, id_: str = "c1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": text}


@pytest.mark.parametrize("name", NAMES)
def test_recordings(name: str, tmp_path: Path) -> None:
    wanted = answers(name)
    found = continuations(open_transcript(unpack(name, tmp_path)))
    assert len(found) == len(wanted)
    for one, want in zip(found, wanted, strict=True):
        assert one.conversation == want["conversation"], want
        assert one.predecessor in {want["predecessor"], want.get("also", want["predecessor"])}, want
        assert (one.relation == "edited") == want.get("edited", False), want
        assert list(one.changed) == want.get("changed", []), want


@pytest.mark.parametrize("case", sequences(), ids=lambda case: case["name"])
def test_sequences(case: dict[str, Any]) -> None:
    found = _found(*map(_request, case["requests"]))
    assert [each.predecessor for each in found] == case["predecessors"]
    assert [each.turn for each in found if each.relation == "edited"] == case["edited"]


@pytest.mark.parametrize(
    ("name", "predecessors"),
    [
        ("interleave-min", [None, None, None, 1]),
        ("title_request", [None, None, 1]),
        ("independent", [None, None]),
        ("rewind-crash", [None, None]),
        ("crash-min", [None, None]),
        ("window", [None, 1]),
        ("new_ids", [None, 1]),
        ("river", [None, 1]),
    ],
)
def test_small_sessions(name: str, predecessors: list[int | None]) -> None:
    found = continuations(open_transcript(SESSIONS / f"{name}.jsonl"))
    assert [each.predecessor for each in found] == predecessors


def test_the_longest_leaf_whose_reply_comes_next() -> None:
    user = {"role": "user", "content": "Which colour?"}
    red, blue = ({"role": "assistant", "content": colour} for colour in ("Red.", "Blue."))
    go_on = {"role": "user", "content": "Why?"}
    # The second would be a retry of the first; both are leaves only where the first has another session.
    found = _found(
        _request([user], reply=red, fields={"session_id": "1"}),
        _request([user], reply=blue, fields={"session_id": "2"}),
        _request([user, red, go_on], fields={"session_id": "1"}),
        _request([user, blue, go_on], fields={"session_id": "2"}),
    )
    assert [each.predecessor for each in found] == [None, None, 1, 2]


def test_a_request_names_the_response_that_it_continues() -> None:
    user = {"role": "user", "content": "Go."}
    found = _found(
        _request([user], response_id="r1"),
        _request([user, _call("ls"), _result("x")], response_id="r2", fields={"previous_response_id": "r1"}),
        _request([user, _call("cd"), _result("y")], fields={"previous_response_id": "r1"}),
    )
    assert [(each.predecessor, each.relation) for each in found] == [
        (None, "begins"),
        (1, "appended"),
        (1, "branch"),
    ]


def test_a_single_message_is_continued_with_equal_system_text_and_tools_only() -> None:
    user = {"role": "user", "content": "Mend it."}
    tools = ({"name": "run", "input_schema": {}},)
    found = _found(
        _request([user], system="You mend.", tools=tools),
        _request([user], system="Write a title."),
        _request([user, _call("ls"), _result("x")], system="You mend.", tools=tools),
    )
    assert [each.predecessor for each in found] == [None, None, 1]


def test_equal_heads_make_no_conversation() -> None:
    head = [{"role": "developer", "content": "Rules."}, {"role": "user", "content": "<environment/>"}]
    found = _found(
        _request([*head, {"role": "user", "content": "One?"}]),
        _request([*head, {"role": "user", "content": "Two?"}]),
    )
    assert [each.relation for each in found] == ["begins", "begins"]


def test_short_replies_do_not_tell_that_a_conversation_goes_on() -> None:
    def asked(*texts: str) -> Request:
        roles = ("user", "assistant")
        return _request([{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)])

    found = _found(asked("a", "Yes.", "b"), asked("c", "Yes.", "d"))
    assert found[1].relation == "begins"


_CONVERSATION = st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=8)


@settings(max_examples=150, deadline=None)
@given(conversations=st.lists(_CONVERSATION, min_size=1, max_size=6), data=st.data())
def test_interleaved_conversations_are_told_apart(
    conversations: list[list[tuple[int, bool]]], data: st.DataObject
) -> None:
    """Append-only conversations with the same system text, tools, results and calls, in any order."""
    system = {"role": "system", "content": "You are an agent."}
    histories = []
    for number, steps in enumerate(conversations):
        messages = [system, {"role": "user", "content": f"Look into part {number}."}]
        requests = [list(messages)]
        for command, asks in steps:
            messages += [_call(f"ls {command}"), _result(f"entries of {command} are these five")]
            if asks:
                messages.append({"role": "user", "content": "Go on."})
            requests.append(list(messages))
        histories.append(requests)
    order = data.draw(
        st.permutations([number for number, requests in enumerate(histories) for _ in requests])
    )
    at = [0] * len(histories)
    last: dict[int, int] = {}
    sent, wanted = [], []
    for turn, number in enumerate(order, 1):
        sent.append(_request(histories[number][at[number]]))
        at[number] += 1
        wanted.append(last.get(number))
        last[number] = turn
    found = _found(*sent)
    assert [each.predecessor for each in found] == wanted
    assert all(each.relation in ("begins", "appended") for each in found)


@settings(max_examples=60, deadline=None)
@given(length=st.integers(2, 8), back=st.integers(1, 8))
def test_a_rewind_goes_back_to_the_request_that_it_begins_with(length: int, back: int) -> None:
    messages = [{"role": "user", "content": "Go."}]
    requests = [list(messages)]
    for step in range(length):
        messages += [_call(f"ls {step}"), _result(f"result {step}")]
        requests.append(list(messages))
    to = max(1, len(requests) - back)
    other = [*requests[to - 1], {"role": "user", "content": "No, otherwise."}]
    *_, last = _found(*map(_request, [*requests, other]))
    assert last.predecessor == to
    assert last.relation == ("branch" if to < len(requests) else "appended")


def test_memory_and_time_follow_what_is_new() -> None:
    import time

    messages: list[dict[str, Any]] = [{"role": "user", "content": "Go."}]
    conversations = Conversations()
    started = time.process_time()
    for turn in range(1, 301):
        messages += [_call(f"ls {turn}"), _result("x" * 1000 + str(turn))]
        conversations.add(turn, _request(messages))
    # 90,000 messages; comparing each with each would take minutes.
    assert time.process_time() - started < 20
