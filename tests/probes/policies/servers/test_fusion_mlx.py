"""What fusion-mlx does to conversations."""

from typing import Any

import pytest
from chat_messages import S, U, data, request_of, vectors_of
from tplaudit.probes.conversation import TOP_LEVEL
from tplaudit.probes.policies.base import Prepared, render_prepared
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.templates.template import ChatTemplate

WRITE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
HELPFUL = S("You are a helpful assistant.")


def template(source: str = WRITE) -> ChatTemplate:
    return ChatTemplate({"default": source}, source="t")


def prepare(messages: list[dict[str, Any]], source: ChatTemplate | None = None, **fields: Any) -> Prepared:
    request = request_of(messages, **fields)
    return parse_policy("fusion-mlx").prepare(request, source or template())


@pytest.mark.parametrize("vector", vectors_of("fusion-mlx"), ids=lambda vector: vector["id"])
def test_vector(vector: dict[str, Any]) -> None:
    assert data(prepare(vector["messages"])) == vector["expected"]


def test_fu4_an_empty_system_message_is_kept() -> None:
    messages = [S(""), U("u1")]
    assert data(prepare(messages)) == messages
    later = [messages[1], {"role": "developer", "content": None}]
    assert data(prepare(later)) == messages


def test_the_servers_own_system_message() -> None:
    after = prepare([U("u")])
    assert data(after)[0] == HELPFUL
    assert after.request.messages[0].index == TOP_LEVEL
    assert [(action.kind, action.messages) for action in after.actions][:1] == [("inserted", ())]
    assert prepare([]).request.messages == ()


@pytest.mark.parametrize("route", ["chat", "messages", "responses", "none"])
def test_all_routes_do_the_same(route: str) -> None:
    messages = [U("u"), S("n")]
    request = request_of(messages)
    after = parse_policy(f"fusion-mlx:route={route}").prepare(request, template())
    assert data(after) == [messages[1], messages[0]]


def test_requests_of_other_dialects() -> None:
    messages = [U("u"), S("n")]
    after = prepare(messages, dialect="anthropic-messages", system="S")
    assert data(after) == [S("S\n\nn"), messages[0]]
    items = [{"type": "message", **message} for message in messages]
    after = prepare([*items, U("without a type")], dialect="openai-responses", system="I")
    assert data(after) == [S("I\n\nn"), U([{"type": "text", "text": "u"}])]
    assert after.request.messages[0].origins == (TOP_LEVEL, 1)


def test_kept_reasoning_is_asked_for_where_the_template_mentions_it() -> None:
    messages = [U("u")]
    source = template("{# preserve_thinking #}" + WRITE)
    assert prepare(messages, source).request.kwargs["preserve_thinking"] is True
    given = prepare(messages, source, kwargs={"preserve_thinking": False})
    assert given.request.kwargs["preserve_thinking"] is False
    assert "preserve_thinking" not in prepare(messages).request.kwargs


@pytest.mark.parametrize(
    ("route", "fields", "kwargs"),
    [
        ("chat", {}, {"enable_thinking": False}),
        ("chat", {"thinking": {"type": "enabled"}}, {"enable_thinking": True}),
        ("chat", {"thinking": {"type": "adaptive"}}, {"enable_thinking": False}),
        ("chat", {"enable_thinking": True, "thinking": {"type": "disabled"}}, {"enable_thinking": False}),
        ("messages", {}, {}),
        ("messages", {"thinking": {"type": "enabled"}}, {"enable_thinking": True}),
        ("messages,model_type=qwen3", {}, {"enable_thinking": False}),
        ("responses", {}, {"enable_thinking": False}),
        ("responses", {"enable_thinking": True}, {"enable_thinking": True}),
        ("responses", {"reasoning": {"effort": "high"}}, {"enable_thinking": False}),
        ("none", {}, {}),
    ],
)
def test_thinking_is_off_by_default(route: str, fields: dict[str, Any], kwargs: dict[str, Any]) -> None:
    request = request_of([U("u")], fields=fields)
    assert parse_policy(f"fusion-mlx:route={route}").prepare(request, template()).request.kwargs == kwargs


def test_for_claude_code_the_chat_route_thinks() -> None:
    assert prepare([S("You are Claude Code, a tool."), U("u")]).request.kwargs == {"enable_thinking": True}


def test_the_chat_route_makes_texts_and_drops_reasoning() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    messages = [
        S("s"),
        U([{"type": "text", "text": "a"}, {"type": "text", "text": ""}, {"type": "text", "text": "b"}]),
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "why"},
    ]
    parsed = {**call, "function": {"name": "f", "arguments": {"a": 1}}}
    assert data(prepare(messages))[1:] == [
        U("a\nb"),
        {"role": "assistant", "content": "", "tool_calls": [parsed]},
    ]


def test_system_turns_of_the_messages_route_are_lines() -> None:
    messages = [U("u"), S([{"type": "text", "text": "a"}, {"type": "text", "text": ""}]), S("b")]
    after = prepare(messages, dialect="anthropic-messages", system="S")
    assert data(after)[0] == S("S\n\na\nb")
    assert after.request.messages[0].origins == (TOP_LEVEL, 1, 2)


@pytest.mark.parametrize(
    ("condition", "prompt"), [("x", "tools<system>s<user>u"), ("tools", "<system>s<user>u")]
)
def test_after_a_type_error_kwargs_go_first_and_tools_next(condition: str, prompt: str) -> None:
    source = template(f"{{{{ 'a' + 1 if {condition} else '' }}}}{{{{ 'tools' if tools else '' }}}}" + WRITE)
    messages = [S("s"), U("u")]
    tools = ({"type": "function", "function": {"name": "f"}},)
    after = prepare(messages, source, kwargs={"x": 1}, tools=tools)
    assert render_prepared(after, source)[0] == prompt
