"""SGLang's routes and the versions of its messages route."""

from typing import Any

import pytest
from chat_messages import CALL, A, S, U, data, part, request_of
from tplaudit.probes.conversation import TOP_LEVEL
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.templates.template import ChatTemplate

IN_PLACE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
DROPS = "{% for m in messages if m.role != 'system' or loop.first %}<{{ m.role }}>{{ m.content }}{% endfor %}"
RAISES = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('x') }}"
    "{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}"
)


def template(text: str) -> ChatTemplate:
    return ChatTemplate({"default": text}, source="test")


CONVERSATION = [S(" a "), U("u"), S(" n\n"), U("v"), S(" ")]


@pytest.mark.parametrize("source", [DROPS, RAISES])
@pytest.mark.parametrize("route", ["messages", "none"])
def test_what_the_template_does_not_write_moves_behind_the_top_level_text(source: str, route: str) -> None:
    after = parse_policy(f"sglang:route={route}").prepare(request_of(CONVERSATION), template(source))
    assert data(after) == [S(" a \nn"), U("u"), U("v")]
    first = after.request.messages[0]
    assert [first.origin(offset) for offset in range(5)] == [0, 0, 0, 2, 2]
    kinds = {action.messages: action.kind for action in after.actions}
    assert kinds == {(2, 4): "probed", (0,): "kept", (2,): "hoisted", (4,): "dropped"}


def test_what_the_template_writes_stays() -> None:
    after = parse_policy("sglang:route=messages").prepare(request_of(CONVERSATION), template(IN_PLACE))
    assert data(after) == CONVERSATION


def test_before_the_test_everything_moved() -> None:
    policy = parse_policy("sglang:route=messages,version=2026-06-01")
    after = policy.prepare(request_of(CONVERSATION), template(IN_PLACE))
    assert [message.role for message in after.request.messages] == ["system", "user", "user"]
    assert all(action.kind != "probed" for action in after.actions)


@pytest.mark.parametrize("source", [IN_PLACE, RAISES])
def test_chat_completions_passes_on(source: str) -> None:
    after = parse_policy("sglang").prepare(request_of(CONVERSATION), template(source))
    assert data(after) == CONVERSATION
    assert {action.kind for action in after.actions} == {"kept"}


def test_an_anthropic_request() -> None:
    request = request_of(
        [
            U([part("a"), part("b")]),
            A([{"type": "thinking", "thinking": "hm"}, part("x")]),
            U([{"type": "tool_result", "tool_use_id": "c", "content": [part("r"), part("s")]}, part("go")]),
            S([part(" n "), part("m")]),
        ],
        dialect="anthropic-messages",
        system=[part("You"), part("x-anthropic-billing-header: v"), part("Be")],
        fields={"thinking": {"type": "adaptive"}},
    )
    after = parse_policy("sglang:reasoning-parser=think").prepare(request, template(RAISES))
    assert data(after) == [
        S("You\nx-anthropic-billing-header: v\nBe\nn\nm"),
        U("a b"),
        A("<think>hm\n</think> x"),
        {"role": "tool", "tool_call_id": "c", "content": "r s"},
        U("go"),
    ]
    assert after.request.messages[0].origins == (TOP_LEVEL, 3)
    assert after.request.kwargs == {"enable_thinking": True}


@pytest.mark.parametrize(
    ("source", "kind", "expected"),
    [
        ("{{ enable_thinking }}{{ thinking }}", "disabled", {"enable_thinking": False}),
        ("{{ thinking }}", "enabled", {"thinking": True}),
        ("{{ messages }}", "adaptive", {"enable_thinking": True}),
        ("{{ thinking }}", "", {}),
    ],
)
def test_thinking_becomes_the_templates_own_variable(
    source: str, kind: str, expected: dict[str, Any]
) -> None:
    request = request_of([U("u")], fields={"thinking": {"type": kind}}, dialect="anthropic-messages")
    policy = parse_policy("sglang:reasoning-parser=think")
    assert policy.prepare(request, template(source)).request.kwargs == expected
    without = parse_policy("sglang").prepare(request, template(source))
    assert without.request.kwargs == {}
    assert bool(without.error) == (kind in ("enabled", "adaptive"))


ITEMS = [
    {"type": "message", "role": "user", "content": "u"},
    {"role": "developer", "content": "d"},
    {"type": "reasoning", "summary": [], "content": [{"text": "r"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "oops"},
    {"type": "function_call_output", "call_id": "c1", "output": [{"text": "x"}, {"text": "y"}]},
]


@pytest.mark.parametrize(
    ("source", "system"),
    [
        (RAISES, [S("I\n\nDeveloper instructions:\nd"), U("u")]),
        (IN_PLACE, [S("I"), U("u"), S("Developer instructions:\nd")]),
    ],
)
def test_responses_ask_the_same_test(source: str, system: list[dict[str, Any]]) -> None:
    request = request_of(ITEMS, dialect="openai-responses", system="I")
    after = parse_policy("sglang").prepare(request, template(source))
    turn = A("a", reasoning_content="r", tool_calls=[CALL])
    assert data(after) == [*system, turn, {"role": "tool", "content": "xy", "tool_call_id": "c1"}]


def test_contents_take_the_form_that_the_template_reads() -> None:
    parts = [part("a"), part(""), part("b")]
    for source, expected in ((IN_PLACE, "a  b"), ("{# image #}" + IN_PLACE, parts)):
        after = parse_policy("sglang").prepare(request_of([U(parts)]), template(source))
        assert data(after) == [U(expected)]


def test_an_assistant_turn_that_is_last_becomes_the_users() -> None:
    after = parse_policy("sglang").prepare(request_of([U("u"), A("a")]), template(IN_PLACE))
    assert data(after) == [U("u"), U("a")]


@pytest.mark.parametrize("arguments", ["", "oops", "[1]"])
def test_arguments_that_are_no_object_are_refused(arguments: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    assert (
        parse_policy("sglang")
        .prepare(request_of([A("", tool_calls=[call]), U("u")]), template(IN_PLACE))
        .error
    )


def test_an_effort_sets_two_variables_but_not_on_messages() -> None:
    chat = request_of([U("u")], fields={"reasoning_effort": "xhigh"})
    kwargs = parse_policy("sglang").prepare(chat, template(IN_PLACE)).request.kwargs
    assert kwargs == {"reasoning_effort": "xhigh", "thinking": True, "enable_thinking": True}
    fields = {"output_config": {"effort": "xhigh"}}
    anthropic = request_of([U("u")], fields=fields, dialect="anthropic-messages", kwargs={"x": 1})
    assert parse_policy("sglang").prepare(anthropic, template(IN_PLACE)).request.kwargs == {
        "reasoning_effort": "max"
    }


def test_a_second_try_has_tools_without_their_wrapper() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    after = parse_policy("sglang").prepare(request_of([U("u")], tools=(tool,)), template(IN_PLACE))
    (written,) = after.request.tools or ()
    assert written == {
        "type": "function",
        "function": {"name": "f", "parameters": {}, "description": None},
        "defer_loading": None,
    }
    (retry,) = after.retries
    assert retry.request.tools == (written["function"],)
