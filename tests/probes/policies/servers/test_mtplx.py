"""MTPLX: the strict hoist of its earlier releases, and the user turns of release 2.12."""

from datetime import datetime
from typing import Any

import pytest
from chat_messages import CALL, VECTORS, A, S, T, U, data, part, prepared, request_of
from tplaudit.probes.conversation import TOP_LEVEL
from tplaudit.probes.errors import RenderError
from tplaudit.probes.policies.base import render_prepared
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.templates.template import ChatTemplate

CALLED = {"id": CALL["id"], "function": CALL["function"]}
MARKED = {"tool_calls": [CALLED], "_preserve_role_boundary": True}


@pytest.mark.parametrize("name", ["S1", "S2", "S3", "S4", "N5", "N6"])
def test_vector(name: str) -> None:
    vector = next(vector for vector in VECTORS if vector["id"] == name)
    spec = "mtplx:version=2.11" if vector["merge_consecutive_roles"] else "mtplx:version=2.11,route=none"
    assert data(prepared(spec, vector["messages"])) == vector["expected"]


def test_later_system_turns_become_user_turns_where_they_stand() -> None:
    messages = [S("a"), S(["b", part("c")]), U("u"), A("x"), S(""), S("n"), A("y")]
    after = prepared("mtplx:version=2.12,route=none", messages)
    assert data(after) == [S("a\n\nbc"), U("u"), A("x"), U("n"), A("y")]
    assert [(action.kind, action.messages) for action in after.actions] == [
        ("kept", (0,)),
        ("kept", (1,)),
        ("dropped", (4,)),
        ("noted", (5,)),
    ]


def test_the_user_turn_beside_it_absorbs_it() -> None:
    messages = [S("base"), U("u"), S("n"), A("", tool_calls=[CALL]), T("r"), S("m"), U("v")]
    after = prepared("mtplx:version=2.12", messages)
    assert data(after) == [S("base"), U("u\n\nn"), A("", **MARKED), T("r"), U("m\n\nv")]
    assert [message.origins for message in after.request.messages] == [(0,), (1, 2), (3,), (4,), (5, 6)]


def test_the_release_drops_void_assistants_and_joins_no_calling_ones() -> None:
    messages = [U("u"), A(""), A(None, tool_calls=[CALL]), A("a"), A([part("b"), part("c")])]
    after = prepared("mtplx:version=2.12", messages)
    assert data(after) == [U("u"), A("", **MARKED), A("a\n\nbc")]
    assert ("dropped", (1,)) in [(action.kind, action.messages) for action in after.actions]


@pytest.mark.parametrize("version", [":version=2.11", ":version=2.12"])
def test_an_anthropic_request(version: str) -> None:
    messages = [
        U(
            [
                part("a"),
                {"type": "tool_result", "tool_use_id": "c1", "content": [part("r"), part("s")]},
                part("b"),
            ]
        ),
        A([{"type": "thinking", "thinking": "t"}, part("x"), part("y")]),
    ]
    after = prepared(
        f"mtplx{version}",
        messages,
        dialect="anthropic-messages",
        system=[
            part("x-anthropic-billing-header: v1"),
            part("You \n X-Anthropic-Billing-Header: z"),
            part("Be"),
        ],
    )
    assert data(after) == [S("You\n\nBe"), U("a"), T("rs"), U("b"), A("xy", reasoning_content="t")]
    assert after.request.messages[0].index == TOP_LEVEL


def test_arguments_that_are_no_object_become_none() -> None:
    call = {**CALL, "function": {"name": "f", "arguments": "[1]"}}
    (turn,) = prepared("mtplx:version=2.11", [A("", tool_calls=[call])]).request.messages
    assert turn.data["tool_calls"] == [CALL]
    after = prepared("mtplx", [A("", tool_calls=[call])])
    assert after.error is not None and "must be a JSON object" in after.error.message
    assert not prepared("mtplx", [A("a")], partial=True).request.partial


TOOL = {
    "type": "function",
    "function": {
        "name": "read",
        "parameters": {
            "type": "object",
            "required": ["path"],
            "properties": {
                "path": {"type": "string"},
                "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
            },
        },
    },
}


def test_turns_without_content_vanish_and_reasoning_becomes_one_field() -> None:
    messages = [
        U(""),
        A(" ", reasoning_content="r"),
        U("u"),
        A(" a\n", reasoning="r"),
        {**T("t"), "name": "n"},
    ]
    after = prepared("mtplx", messages)
    assert data(after) == [U("u"), A("a", reasoning_content="r"), T("t")]
    kept = prepared("mtplx", [U("u"), A("<think>x</think>a", reasoning_content="r")])
    assert "reasoning_content" not in data(kept)[1]


def test_the_servers_own_kwargs_are_the_only_ones() -> None:
    template = ChatTemplate({"default": "{{ messages[0].content }}"}, source="test")

    def kwargs(**given: Any) -> Any:
        return parse_policy("mtplx").prepare(request_of([U("u")], **given), template).request.kwargs

    asked = kwargs(kwargs={"enable_thinking": False, "x": 1})
    assert asked == {"enable_thinking": False, "preserve_thinking": True}
    disabled = kwargs(dialect="anthropic-messages", fields={"thinking": {"type": "disabled"}})
    assert disabled["enable_thinking"] is False
    effort = {"fields": {"reasoning_effort": "high"}}
    assert "reasoning_effort" not in prepared("mtplx", [U("u")], **effort).request.kwargs
    assert prepared("mtplx:family=qwen3.8", [U("u")], **effort).request.kwargs["reasoning_effort"] == "xhigh"


def test_the_tool_contract() -> None:
    after = prepared("mtplx", [S("s"), U("u")], tools=(TOOL,), now=datetime(2026, 11, 29))
    first = after.request.messages[0]
    assert first.content.startswith(
        "s\n\nMTPLX tool contract: Today's date is November 29, 2026. Your training"
    )
    assert "Declared tools and schemas: read(path:string, tags?:a|b[]). Call only" in first.content
    example = "<tool_call>\n<function=read>\n<parameter=path>\nARGUMENT_VALUE\n</parameter>\n</function>\n"
    assert f"for example: {example}</tool_call>. Do not put" in first.content
    assert after.request.tools is not None
    assert prepared("mtplx:tool_prompt=compact", [U("u")], tools=(TOOL,)).request.tools is None
    assert data(prepared("mtplx:tool_prompt=native", [U("u")], tools=(TOOL,))) == [U("u")]


def test_neighbouring_user_turns_are_retries_where_there_are_tools() -> None:
    messages = [U("do it now"), U("Do  it now "), U(" and then"), A("a")]
    after = prepared("mtplx:tool_prompt=native", messages, tools=(TOOL,))
    assert data(after) == [U("Do  it now\n\nand then"), A("a")]
    assert after.request.messages[0].origins == (1, 2)


def test_a_template_that_raises_leaves_plain_text_without_tools() -> None:
    template = ChatTemplate({"default": "{{ raise_exception('no') }}"}, source="test")
    after = parse_policy("mtplx").prepare(request_of([S("s"), U("u")]), template)
    assert render_prepared(after, template)[0] == "system: s\nuser: u\nassistant:"
    tools = parse_policy("mtplx").prepare(request_of([S("s"), U("u")], tools=(TOOL,)), template)
    with pytest.raises(RenderError, match="no"):
        render_prepared(tools, template)


def test_a_think_block_is_closed_where_the_template_always_opens_one() -> None:
    source = (
        "{{ messages[0].content }}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
    )
    template = ChatTemplate({"default": source}, source="test")
    after = parse_policy("mtplx").prepare(request_of([U("u")], kwargs={"enable_thinking": False}), template)
    assert render_prepared(after, template)[0] == "u<|im_start|>assistant\n<think>\n\n</think>\n\n"


REASONING = {"type": "reasoning", "summary": []}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "o"}


@pytest.mark.parametrize(
    ("items", "fields", "why"),
    [
        ([U("u"), REASONING], {}, "'reasoning' is not supported"),
        ([U("u"), OUTPUT], {}, "matching function_call"),
        ([U("u")], {"store": True}, "store is not supported"),
        ([U("u")], {"min_p": 1}, "unsupported field"),
        ([U("u")], {"reasoning": {"effort": "minimal"}}, "reasoning.effort"),
    ],
)
def test_responses_that_the_server_refuses(items: list[Any], fields: dict[str, Any], why: str) -> None:
    after = prepared("mtplx", items, dialect="openai-responses", fields=fields)
    assert after.error is not None and why in after.error.message


def test_instructions_and_a_system_item_are_joined_first() -> None:
    items = [S("s"), {"role": "assistant", "content": "a"}, U("u")]
    after = prepared("mtplx", items, dialect="openai-responses", system="I")
    assert data(after) == [S("I\n\ns"), A("a"), U("u")]
