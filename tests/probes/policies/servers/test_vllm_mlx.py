"""vllm-mlx: the hoist of its messages adapter, its chat normalisation, and whole routes."""

from typing import Any

import pytest
from chat_messages import CALL, A, S, T, U, data, part, prepared, vectors_of
from tplaudit.probes.conversation import TOP_LEVEL, Request
from tplaudit.probes.errors import RenderError
from tplaudit.probes.policies.base import render_prepared

PRINTED = "type='text', text='r', image_url=None, video=None, video_url=None, audio_url=None"
BILLING = "x-anthropic-billing-header: cc_version=2.1; cch=abcde;"


@pytest.mark.parametrize("vector", vectors_of("vllm-mlx/"), ids=lambda each: each["id"])
def test_vector(vector: dict[str, Any]) -> None:
    route = {"vllm-mlx/anthropic": "none", "vllm-mlx/chat": "chat"}[vector["policy"]]
    spec = f"vllm-mlx:route={route},engine=vlm"
    assert data(prepared(spec, vector["messages"])) == vector["expected"]


def test_vm6_after_a_tool_result() -> None:
    messages = [U("u1"), A("", tool_calls=[CALL]), T("r"), S("n")]
    for route in ("none", "messages"):
        spec = f"vllm-mlx:route={route},tools=native"
        assert data(prepared(spec, messages)) == [S("n"), *messages[:3]]


def test_the_whole_messages_route_joins_the_users_that_the_hoist_left_side_by_side() -> None:
    messages = [U("u1"), S("n"), U("u2")]
    assert data(prepared("vllm-mlx:route=none", messages)) == [S("n"), U("u1"), U("u2")]
    after = prepared("vllm-mlx:route=messages", messages)
    assert data(after) == [S("n"), U("u1\n\nu2")]
    assert after.request.messages[1].origins == (0, 2)


def test_the_chat_route_leaves_later_system_turns_to_the_template() -> None:
    after = prepared("vllm-mlx", [S("a"), U("u"), A("a"), S("n")])
    assert [message.role for message in after.request.messages] == ["system", "user", "assistant", "system"]
    assert [action.kind for action in after.actions] == ["kept", "kwargs"]


def test_a_joined_turn_says_what_it_loses() -> None:
    after = prepared("vllm-mlx:engine=vlm", [A("a"), A("b", reasoning_content="why")])
    assert data(after) == [A("a\n\nb")]
    (merged,) = [action for action in after.actions if action.kind == "merged"]
    assert "reasoning_content of message 1 is lost" in merged.why


@pytest.mark.parametrize("route", ["chat", "messages", "responses"])
def test_billing_lines_leave_system_texts(route: str) -> None:
    messages = [S(f"a\n{BILLING}\nb"), U(f"u\n{BILLING}"), A("x"), S(f"{BILLING}\nn")]
    after = prepared(f"vllm-mlx:route={route}", messages)
    systems = [message for message in after.request.messages if message.role == "system"]
    assert BILLING not in str([message.content for message in systems])
    assert BILLING in after.request.messages[1].content
    first = systems[0]
    assert [first.origin(first.content.index(text)) for text in ("a", "b")] == [0, 0]
    last = systems[-1]
    assert last.origin(last.content.index("n")) == 3


def test_a_system_message_of_a_billing_line_alone_becomes_empty() -> None:
    assert data(prepared("vllm-mlx:route=messages", [S(BILLING), U("u")])) == [S(""), U("u")]


def test_the_text_engine_makes_texts_and_drops_other_keys() -> None:
    picture = {"type": "image_url", "image_url": {"url": "x"}}
    messages = [
        U([part("a"), picture, part("b")]),
        U("c"),
        A(None, tool_calls=[CALL], name="x"),
        T([part("r")]),
    ]
    after = prepared("vllm-mlx:tools=native,engine=batched", messages)
    assert data(after) == [U("a\nb\n\nc"), A("", tool_calls=[CALL]), T([PRINTED.replace(", ", " ")])]
    assert data(prepared("vllm-mlx:engine=vlm", messages))[0] == messages[0]
    assert [(action.kind, action.messages) for action in after.actions][:2] == [
        ("converted", (0, 2, 3)),
        ("dropped", (2,)),
    ]


def test_an_anthropic_request() -> None:
    messages = [
        U([{"type": "tool_result", "tool_use_id": "c1", "content": [part("r"), part("s")]}, part("go")]),
        A([part("x"), {"type": "tool_use", "id": "c1", "name": "f", "input": {}}]),
        S([part("n")]),
    ]
    after = prepared(
        "vllm-mlx:tools=native",
        messages,
        dialect="anthropic-messages",
        system=[part(BILLING), part("You"), part("Be")],
    )
    assert data(after) == [S("You\nBe\n\nn"), U("go"), T("r\ns"), A("x", tool_calls=[CALL])]
    assert after.request.messages[0].origins == (TOP_LEVEL, 2)


def test_a_responses_request() -> None:
    items = [
        {"type": "message", "role": "user", "content": "u"},
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "why"}]},
        {"type": "message", "role": "developer", "content": " d "},
        {"type": "message", "role": "user", "content": "v"},
    ]
    after = prepared("vllm-mlx", items, dialect="openai-responses", system=" I\n")
    assert data(after) == [S("I\n\nd"), U("u"), A("why"), U("v")]
    assert after.request.messages[0].origins == (TOP_LEVEL, 2)


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [('{"a": 1}', {"a": 1}), ("[1]", [1]), ("oops", {"value": "oops"}), ('"x"', {"value": "x"})],
)
def test_arguments(arguments: str, parsed: Any) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    (turn,) = prepared("vllm-mlx:tools=native", [A("", tool_calls=[call])]).request.messages
    assert turn.data["tool_calls"][0]["function"]["arguments"] == parsed


@pytest.mark.parametrize(
    ("fields", "thinks"),
    [
        ({}, True),
        ({"fields": {"model": "Qwen3-Coder-30B", "stream": True}}, False),
        ({"fields": {"enable_thinking": False}}, False),
        ({"kwargs": {"enable_thinking": False}}, False),
    ],
)
def test_enable_thinking_is_always_set(fields: dict[str, Any], thinks: bool) -> None:
    assert prepared("vllm-mlx", [U("u")], **fields).request.kwargs == {"enable_thinking": thinks}


class NoExtras:
    """A template that takes neither tools nor kwargs; `hopeless` raises whatever it gets."""

    def __init__(self, hopeless: bool = False) -> None:
        self.hopeless = hopeless

    def render_request(self, request: Request, *, profile: str) -> str:
        if request.tools or request.kwargs:
            raise RenderError("TypeError", "first")
        if self.hopeless:
            raise RenderError("TemplateError", "second")
        return "prompt"


def test_a_type_error_is_answered_without_tools_and_kwargs() -> None:
    tools = ({"type": "function", "function": {"name": "f"}},)
    after = prepared("vllm-mlx", [U("u")], tools=tools, kwargs={"x": 1})
    assert render_prepared(after, NoExtras())[0] == "prompt"  # type: ignore[arg-type]
    with pytest.raises(RenderError, match="second"):
        render_prepared(after, NoExtras(hopeless=True))  # type: ignore[arg-type]


def test_by_default_calls_and_results_become_text_which_joins_its_neighbours() -> None:
    messages = [U("u"), A("a", tool_calls=[CALL]), T("r"), U("v"), T([part("r")])]
    assert data(prepared("vllm-mlx", messages)) == [
        U("u"),
        A("a\n[Calling tool: f({})]"),
        U(f"[Tool Result (c1)]: r\n\nv\n\n[Tool Result (c1)]: [ContentPart({PRINTED})]"),
    ]


def test_the_simple_engine_sets_no_thinking_where_it_neither_streams_nor_has_tools() -> None:
    body = {"model": "m"}
    tools = ({"type": "function", "function": {"name": "f"}},)
    assert prepared("vllm-mlx", [U("u")], fields=body).request.kwargs == {}
    for spec, given in (
        ("vllm-mlx:engine=batched", {"fields": body}),
        ("vllm-mlx", {"fields": {**body, "stream": True}}),
        ("vllm-mlx", {"fields": body, "tools": tools}),
        ("vllm-mlx", {}),
    ):
        assert prepared(spec, [U("u")], **given).request.kwargs == {"enable_thinking": True}


def test_an_empty_block_leaves_no_line_and_no_tools_are_none() -> None:
    blocks = [part("a"), part(""), part("b")]
    after = prepared("vllm-mlx", [U(blocks)], dialect="anthropic-messages", tools=())
    assert data(after) == [U("a\nb")]
    assert after.request.tools is None
    assert data(prepared("vllm-mlx", [U(blocks)])) == [U("a\n\nb")]


def test_only_the_chat_route_hands_an_effort_on() -> None:
    fields = {"reasoning_effort": "low", "reasoning": {"effort": "low"}}
    for route, kwargs in (("chat", {"reasoning_effort": "low"}), ("responses", {}), ("messages", {})):
        after = prepared(f"vllm-mlx:route={route}", [U("u")], fields=fields)
        assert after.request.kwargs == {**kwargs, "enable_thinking": True}
