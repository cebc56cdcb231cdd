"""Responses items as chat messages, and whom each of them came from."""

from typing import Any

import pytest
from chat_messages import A, S, T, U, data, part
from tplaudit.probes.conversation import TOP_LEVEL, Message, Request
from tplaudit.probes.policies.api.responses_route import ResponsesRules, convert_responses
from tplaudit.probes.policies.base import Action, Prepared


def message(role: str, content: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


def call(identity: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": identity, "name": "f", "arguments": '{"a": 1}'}


def output(identity: str, content: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": identity, "output": content}


def thought(*texts: str) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": each} for each in texts]}


def called(identity: str) -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}


def convert(*items: dict[str, Any], system: Any = None, tools: Any = None, **rules: Any) -> Prepared:
    turns = tuple(Message(item, n) for n, item in enumerate(items))
    request = Request(turns, tools=tools, dialect="openai-responses", system=system)
    return convert_responses(request, ResponsesRules(**rules))


def test_instructions_and_developer_items() -> None:
    after = convert(message("developer", "d"), message("user", "u"), system="I")
    assert data(after) == [S("I"), S("d"), U("u")]
    assert [each.index for each in after.request.messages] == [TOP_LEVEL, 0, 1]
    assert (after.request.system, after.request.dialect) == (None, "openai-chat")


def test_items_without_a_type_are_messages() -> None:
    item = Message(U("u"), 0)
    after = convert_responses(Request((item,), dialect="openai-responses"), ResponsesRules())
    assert after.request.messages[0] is item


def test_neighbouring_calls_are_one_turn() -> None:
    after = convert(
        message("user", "u"),
        call("c1"),
        call("c2"),
        output("c1", "r1"),
        output("c2", "r2"),
        message("user", "v"),
    )
    assert data(after) == [
        U("u"),
        {"role": "assistant", "tool_calls": [called("c1"), called("c2")]},
        T("r1"),
        {"role": "tool", "tool_call_id": "c2", "content": "r2"},
        U("v"),
    ]
    assert [each.index for each in after.request.messages] == [0, 1, 3, 4, 5]
    assert after.actions == (
        Action("converted", (1, 2), "neighbouring function calls become one assistant turn"),
    )


def test_calls_join_the_assistant_text_before_them() -> None:
    after = convert(message("user", "u"), message("assistant", "on it"), call("c1"))
    assert data(after)[1:] == [A("on it", tool_calls=[called("c1")])]
    assert after.request.messages[1].index == 1


def test_calls_that_follow_calls_after_a_result_are_a_turn_of_their_own() -> None:
    after = convert(call("c1"), output("c1", "r"), call("c2"))
    assert [each["role"] for each in data(after)] == ["assistant", "tool", "assistant"]


def test_reasoning_goes_to_the_next_assistant_turn() -> None:
    after = convert(thought("t1", "t2"), message("assistant", "a"), thought("t3"), call("c1"))
    assert data(after) == [A("a", reasoning_content="t3", tool_calls=[called("c1")])]
    after = convert(message("user", "u"), thought("t1", "t2"), message("assistant", "a"))
    assert data(after)[1] == A("a", reasoning_content="t1\nt2")
    assert (
        "reasoning_content" not in data(convert(thought("t"), message("assistant", "a"), reasoning=False))[0]
    )


def test_parts() -> None:
    parts = [
        {"type": "input_text", "text": "a"},
        {"type": "input_image", "image_url": "x"},
        "b",
        {"type": "refusal"},
    ]
    assert data(convert(message("user", parts))) == [U("a\nb")]
    assert data(convert(message("user", parts), images=True)) == [
        U([part("a"), {"type": "input_image", "image_url": "x", "detail": "auto"}, part("b")])
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("r", "r"),
        (None, ""),
        ([{"type": "input_text", "text": "a"}, {"type": "output_text", "text": "b"}], "a\nb"),
        (
            [{"type": "input_text", "text": "a"}, {"type": "input_image", "url": "x"}],
            "a\n(see attached image)",
        ),
        ([{"k": 1}], '[{"k": 1}]'),
        ([part("a"), {"k": 1}, "b"], 'a\n{"k": 1}\nb'),
    ],
)
def test_outputs(content: Any, words: str) -> None:
    assert data(convert(output("c1", content))) == [T(words)]


def test_images_of_outputs_follow_the_last_of_them() -> None:
    picture = [{"type": "input_image", "image_url": "x"}]
    after = convert(call("c1"), output("c1", picture), output("c2", "r"), message("user", "u"), images=True)
    assert [each["role"] for each in data(after)] == ["assistant", "tool", "tool", "user", "user"]
    assert after.request.messages[3].index == 1


def test_other_items_are_left_out() -> None:
    after = convert({"type": "web_search_call", "id": "w"}, message("user", "u"))
    assert data(after) == [U("u")]
    assert after.actions == (Action("dropped", (0,), "the server leaves out items of type web_search_call"),)


def test_tools() -> None:
    tools = (
        {
            "type": "function",
            "name": "f",
            "description": "F",
            "parameters": {"type": "object"},
            "strict": False,
        },
        {"type": "function", "name": "g", "description": ""},
        {"type": "web_search"},
    )
    assert convert(message("user", "u"), tools=tools).request.tools == (
        {
            "type": "function",
            "function": {"name": "f", "description": "F", "parameters": {"type": "object"}, "strict": False},
        },
        {"type": "function", "function": {"name": "g"}},
    )
    assert convert(message("user", "u"), tools=tools[2:]).request.tools is None
