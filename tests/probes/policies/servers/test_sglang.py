"""SGLang's routes and the versions of its messages route."""

from typing import Any

import pytest
from chat_messages import A, S, U, data, part, request_of
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
    after = parse_policy("sglang").prepare(request, template(RAISES))
    assert data(after) == [
        S("You\nx-anthropic-billing-header: v\nBe\nn \nm"),
        U("a b"),
        A("<think>\nhm\n</think> x"),
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
    request = request_of([U("u")], fields={"thinking": {"type": kind}})
    assert parse_policy("sglang").prepare(request, template(source)).request.kwargs == expected


def test_responses_pass_on() -> None:
    request = request_of(
        [{"type": "message", "role": "user", "content": "u"}, {"role": "developer", "content": "d"}],
        dialect="openai-responses",
        system="I",
    )
    after = parse_policy("sglang").prepare(request, template(RAISES))
    assert [message.role for message in after.request.messages] == ["system", "user", "system"]
