"""mlx-vlm: three versions of its messages route, and the others."""

import json
from typing import Any

import pytest
from chat_messages import CALL, A, S, U, data, part, prepared, vectors_of
from tplaudit.probes.conversation import TOP_LEVEL
from tplaudit.probes.templates.template import ChatTemplate


def template(text: str) -> ChatTemplate:
    return ChatTemplate({"default": text}, source="test")


@pytest.mark.parametrize("route", ["none", "messages"])
@pytest.mark.parametrize("vector", vectors_of("mlx-vlm/"), ids=lambda each: each["id"])
def test_vector(vector: dict[str, Any], route: str) -> None:
    assert data(prepared(f"mlx-vlm:route={route},version=2052", vector["messages"])) == vector["expected"]


def test_mv4_between_users() -> None:
    messages = [U("u1"), S("n"), U("u2")]
    for route in ("none", "messages"):
        assert data(prepared(f"mlx-vlm:route={route},version=2052", messages)) == messages


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (",version=2052", [S("a\nb"), U("u"), S("n"), A("x")]),
        (",version=before-2052", [S("a\nb\nn"), U("u"), A("x")]),
        (",version=0.7.10", [S("a\nb"), U("u"), U("n"), A("x")]),
        ("", [S("a\nb"), U("u"), U("n"), A("x")]),
    ],
)
def test_versions_of_the_messages_route(version: str, expected: list[dict[str, Any]]) -> None:
    messages = [S("a"), S([part(" b"), part("")]), U("u"), S("n"), A("x")]
    after = prepared(f"mlx-vlm:route=messages{version}", messages, template("{{ x }}"))
    assert data(after) == expected
    assert after.request.messages[0].origins[:2] == (0, 1)


def test_a_later_system_turn_is_told_apart() -> None:
    messages = [U("u"), S("n")]
    for version, kind in (("before-2052", "hoisted"), ("0.7.10", "noted")):
        after = prepared(f"mlx-vlm:route=none,version={version}", messages)
        assert [(action.kind, action.messages) for action in after.actions] == [(kind, (1,))]


def test_chat_completions_passes_on_and_since_0_7_10_hoists() -> None:
    messages = [S("a"), U([part("u")]), {"role": "developer", "content": [part("n"), part("m ")]}]
    assert data(prepared("mlx-vlm:version=2052", messages)) == messages
    after = prepared("mlx-vlm", messages, template("{{ messages }}"))
    assert data(after) == [S("a\n\nn m"), U("u")]
    assert after.request.messages[0].origins == (0, 2)


@pytest.mark.parametrize("version", ["before-2052", "0.7.10"])
def test_responses_hoists_in_every_version(version: str) -> None:
    items = [
        {"type": "message", "role": "user", "content": "u"},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "d"}]},
    ]
    after = prepared(
        f"mlx-vlm:version={version}", items, template("{{ x }}"), dialect="openai-responses", system="I"
    )
    assert data(after) == [S("I\n\nd"), U("u")]
    assert after.request.messages[0].origins == (TOP_LEVEL, 1)


def test_an_anthropic_request_is_trimmed_and_keeps_the_billing_header() -> None:
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [part(" r"), part("")]}
    messages = [
        U([result, part(" go "), part("")]),
        A([part("x "), {"type": "tool_use", "id": "c1", "name": "f", "input": {}}]),
        S([part("n")]),
    ]
    header = "x-anthropic-billing-header: v1"
    system = [part(header), part("You ")]
    after = prepared("mlx-vlm:version=2052", messages, dialect="anthropic-messages", system=system)
    assert data(after) == [
        S(f"{header}\nYou"),
        U("go"),
        {"role": "tool", "tool_call_id": "c1", "content": "r"},
        A("x", tool_calls=[CALL]),
        S("n"),
    ]
    picture = {"type": "image", "source": {"type": "url", "url": "x"}}
    turns = prepared("mlx-vlm", [U([part(" a"), picture])], template("{{ x }}"), dialect="anthropic-messages")
    (turn,) = data(turns)
    assert part(" a") in turn["content"]


def test_kwargs_and_arguments_and_tools() -> None:
    call = {**CALL, "function": {"name": "f", "arguments": "oops"}}
    tool = {"type": "function", "function": {"parameters": {"b": [1], "a": {}}, "name": "f"}}
    after = prepared(
        "mlx-vlm", [A("", tool_calls=[call])], template("{{ x }}"), tools=(tool,), kwargs={"x": 1}
    )
    assert after.request.messages[0].data["tool_calls"] == [CALL]
    assert json.dumps(after.request.tools[0]) == (  # type: ignore[index]
        '{"function": {"name": "f", "parameters": {"a": {}, "b": [1]}}, "type": "function"}'
    )
    assert after.request.kwargs == {"enable_thinking": False}
    older = prepared("mlx-vlm:version=2052", [U("u")], fields={"thinking": {"type": "enabled"}})
    assert older.request.kwargs == {"enable_thinking": True}
    assert not prepared("mlx-vlm", [A("a")], template("{{ x }}"), partial=True).request.partial


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"enable_thinking": True}, {"enable_thinking": True, "reasoning": True}),
        ({"thinking": {"type": "disabled"}}, {"enable_thinking": False}),
        (
            {"reasoning_effort": "High"},
            {
                "enable_thinking": True,
                "reasoning": True,
                "reasoning_effort": "high",
                "reasoning_strength": "high",
            },
        ),
        (
            {"reasoning_effort": "none"},
            {
                "enable_thinking": False,
                "reasoning": False,
                "reasoning_effort": "none",
                "reasoning_strength": "none",
            },
        ),
        ({"reasoning": {}}, {"enable_thinking": True, "reasoning": True}),
    ],
)
def test_what_the_fields_of_a_chat_body_become(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert prepared("mlx-vlm", [U("u")], template("{{ x }}"), fields=fields).request.kwargs == expected


def test_thinking_on_sets_the_mode_that_a_template_names_and_the_budget() -> None:
    fields = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    given = template("{{ thinking_mode }}")
    after = prepared("mlx-vlm", [U("u")], given, dialect="anthropic-messages", fields=fields)
    assert after.request.kwargs == {
        "enable_thinking": True,
        "reasoning": True,
        "thinking_budget": 1024,
        "thinking_mode": "enabled",
    }


def test_texts_of_a_list_are_joined_by_spaces_and_reasoning_has_two_names() -> None:
    messages = [U([part(" a"), part(""), part("b ")]), A(None, reasoning="r")]
    after = prepared("mlx-vlm", messages, template("{{ x }}"))
    assert data(after) == [U("a b"), A("", reasoning="r", reasoning_content="r")]


def test_a_request_without_any_text_is_refused() -> None:
    assert prepared("mlx-vlm", [S(" "), U([])], template("{{ x }}")).error


def test_an_assistant_item_with_nothing_in_it_is_left_out() -> None:
    items = [{"role": "user", "content": "u"}, {"type": "message", "role": "assistant", "content": []}]
    assert data(prepared("mlx-vlm", items, template("{{ x }}"), dialect="openai-responses")) == [U("u")]
