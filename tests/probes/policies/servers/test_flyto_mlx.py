"""What flyto-mlx does to conversations."""

from typing import Any

import pytest
from chat_messages import A, S, T, U, data, part, request_of, vectors_of
from tplaudit.probes.conversation import Message, Request
from tplaudit.probes.policies.base import Prepared
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.templates.template import ChatTemplate

IN_PLACE = ChatTemplate(
    {"default": "{# == 'tool' tool_calls #}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"},
    source="t",
)
NOTE = "[System note]\nn\n[/System note]"


def prepare(messages: list[dict[str, Any]], name: str, **fields: Any) -> Prepared:
    request = request_of(messages, **fields)
    return parse_policy(name).prepare(request, IN_PLACE)


@pytest.mark.parametrize("vector", vectors_of("flyto/anthropic"), ids=lambda vector: vector["id"])
@pytest.mark.parametrize("route", ["messages", "none"])
def test_vector(vector: dict[str, Any], route: str) -> None:
    assert data(prepare(vector["messages"], f"flyto-mlx:route={route}")) == vector["expected"]


def test_f3_a_user_turn_made_of_a_tool_result_takes_a_note() -> None:
    bound = U("[Tool Result (c1)]: r", _preserve_role_boundary=True)
    reply = A("a")
    after = prepare([bound, S("n"), reply], "flyto-mlx:route=messages")
    assert data(after) == [{**bound, "content": f"[Tool Result (c1)]: r\n\n{NOTE}"}, reply]


def test_a_result_with_an_image_takes_no_note() -> None:
    picture = [{"type": "image_url", "image_url": {"url": "x"}}]
    tool = T(picture)
    after = prepare([tool, S("n")], "flyto-mlx:route=messages")
    assert data(after) == [S("n"), tool]


@pytest.mark.parametrize("route", ["chat", "responses"])
def test_the_other_routes_hoist(route: str) -> None:
    turns = [("user", "u1"), ("system", "n"), ("user", "u2")]
    messages = [{"role": role, "content": content} for role, content in turns]
    after = prepare(messages, f"flyto-mlx:route={route}")
    joined = [U("u1\n\nu2")] if route == "chat" else [U("u1"), U("u2")]
    assert data(after) == [S("n"), *joined]
    assert "hoisted" in [action.kind for action in after.actions]


def test_the_token_counter_is_taken_out_of_system_turns_only() -> None:
    counter = "\n\n<total_tokens>9 tokens left</total_tokens>"
    messages = [S([part("S" + counter)]), U("u" + counter), S(counter), A("a")]
    for route in ("messages", "none"):
        after = prepare(messages, f"flyto-mlx:route={route}")
        assert data(after) == [S("S"), messages[1], messages[3]]
        assert [(action.kind, action.messages) for action in after.actions if action.kind == "dropped"] == [
            ("dropped", (0, 2))
        ]


def test_an_anthropic_request() -> None:
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "r"}
    use = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
    messages = [U("u"), A([use]), U([result]), S("n")]
    source = ChatTemplate({"default": "[TOOL_CALLS]"}, source="t")
    request = request_of(messages, dialect="anthropic-messages", system="S")
    after = parse_policy("flyto-mlx").prepare(request, source)
    assert [each["role"] for each in data(after)] == ["system", "user", "assistant", "tool"]
    assert data(after)[-1] == T(f"r\n\n{NOTE}")
    assert after.request.messages[-1].origins == (2, 3)


def test_only_mlx_lms_parser_keeps_calls_and_results() -> None:
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "r"}
    after = prepare([U([result, part("go")])], "flyto-mlx", dialect="anthropic-messages")
    assert data(after) == [U("[Tool Result (c1)]: r\ngo", _preserve_role_boundary=True)]


def test_messages_joins_neighbours_after_the_notes() -> None:
    messages = [S("a"), S([part("b"), part("")]), U("u"), S("n"), U("v")]
    after = prepare(messages, "flyto-mlx", dialect="anthropic-messages", system="S")
    assert data(after) == [S("S\n\na\nb"), U(f"u\n\n{NOTE}\n\nv")]


@pytest.mark.parametrize(
    ("route", "fields", "kwargs"),
    [
        ("chat", {"reasoning_effort": "Low"}, {"reasoning_effort": "low", "enable_thinking": True}),
        ("chat", {"reasoning_effort": "off"}, {"enable_thinking": False}),
        ("messages", {"output_config": {"effort": "max"}}, {"reasoning_effort": "high"}),
        ("messages", {"thinking": {"type": "disabled"}}, {"enable_thinking": False}),
        ("responses", {"reasoning": {"effort": "medium"}}, {"reasoning_effort": "medium"}),
        ("responses", {"reasoning": {"effort": "xhigh"}}, {}),
    ],
)
def test_efforts(route: str, fields: dict[str, Any], kwargs: dict[str, Any]) -> None:
    after = prepare([U("u")], f"flyto-mlx:route={route}", fields=fields)
    assert after.request.kwargs == kwargs
    assert after.error is None


def test_the_chat_route_refuses_other_efforts_and_arguments() -> None:
    assert prepare([U("u")], "flyto-mlx:route=chat", fields={"reasoning_effort": "max"}).error is not None
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "[1]"}}
    assert prepare([A("", tool_calls=[call])], "flyto-mlx:route=chat").error is not None


def test_the_responses_route_ignores_template_kwargs_and_joins_empty_instructions() -> None:
    items = [{"type": "message", "role": "developer", "content": ""}, {"role": "user", "content": "u"}]
    after = prepare(items, "flyto-mlx", dialect="openai-responses", system="I", kwargs={"x": 1})
    assert data(after) == [S("I\n\n"), U("u")]
    assert after.request.kwargs == {}


def test_it_never_asks_the_template(fake_template: Any) -> None:
    template = fake_template()
    turns = [("user", "u"), ("system", "n")]
    request = Request(tuple(Message({"role": r, "content": c}, n) for n, (r, c) in enumerate(turns)))
    for route in ("messages", "chat", "responses", "none"):
        parse_policy(f"flyto-mlx:route={route}").prepare(request, template)
    assert template.calls == []
