"""vLLM's three routes and the versions of its messages route."""

from typing import Any

import pytest
from chat_messages import A, S, U, data, part, request_of, vectors_of
from tplaudit.probes.conversation import TOP_LEVEL, Request
from tplaudit.probes.policies.registry import parse_policy

BEHAVIOURS = {"vllm/messages merge": "raises", "vllm/messages inline": "in place"}
BILLING = "x-anthropic-billing-header: cc_version=2.1; cch=abcde;"


@pytest.mark.parametrize("route", ["messages", "none"])
@pytest.mark.parametrize("vector", vectors_of("vllm/"), ids=lambda vector: vector["id"])
def test_vector(vector: dict[str, Any], route: str, fake_template: Any) -> None:
    template = fake_template(BEHAVIOURS[vector["policy"]])
    after = parse_policy(f"vllm:route={route}").prepare(request_of(vector["messages"]), template)
    assert data(after) == vector["expected"]
    assert len(template.calls) == 1


def test_two_leading_systems_are_joined_without_a_separator(fake_template: Any) -> None:
    messages = [S("a"), S("b"), U("u")]
    after = parse_policy("vllm:route=messages").prepare(request_of(messages), fake_template("raises"))
    assert data(after) == [S("ab"), U("u")]
    assert [message.origins for message in after.request.messages] == [(0, 1), (2,)]


@pytest.mark.parametrize(
    ("version", "behaviour", "asked", "roles"),
    [
        ("2026-06-02", "in place", False, ["system", "user"]),
        ("2026-06-15", "raises", False, ["system", "user", "system"]),
        ("2026-06-18", "in place", True, ["system", "user", "system"]),
        ("2026-06-18", "drops", True, ["system", "user", "system"]),
        ("2026-06-18", "raises", True, ["system", "user"]),
    ],
)
def test_versions(version: str, behaviour: str, asked: bool, roles: list[str], fake_template: Any) -> None:
    template = fake_template(behaviour)
    messages = [S("a"), U("u"), S("n")]
    after = parse_policy(f"vllm:route=messages,version={version}").prepare(request_of(messages), template)
    assert [message.role for message in after.request.messages] == roles
    assert bool(template.calls) == asked
    assert any(action.kind == "probed" for action in after.actions) == asked


def test_chat_completions_passes_on(fake_template: Any) -> None:
    messages = [{"role": "developer", "content": "d"}, U("u"), S([part("n")])]
    template = fake_template("raises")
    after = parse_policy("vllm").prepare(request_of(messages), template)
    assert data(after) == messages
    assert not template.calls


def test_arguments_are_parsed_except_for_the_bare_rules(fake_template: Any) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    messages = [U("u"), A("", tool_calls=[call])]
    parsed = {**call, "function": {"name": "f", "arguments": {"x": 1}}}
    for route, expected in (("chat", parsed), ("messages", parsed), ("none", call)):
        after = parse_policy(f"vllm:route={route}").prepare(request_of(messages), fake_template())
        assert data(after)[1]["tool_calls"] == [expected]


def anthropic(system: Any, messages: list[dict[str, Any]], **fields: Any) -> Request:
    return request_of(messages, dialect="anthropic-messages", system=system, **fields)


def test_an_anthropic_request(fake_template: Any) -> None:
    request = anthropic(
        [part(BILLING), part("You"), part("Be")],
        [
            U([part("a"), part("b")]),
            A(
                [
                    {"type": "thinking", "thinking": "hm"},
                    {"type": "tool_use", "id": "c", "name": "f", "input": {"x": 1}},
                ]
            ),
            U([{"type": "tool_result", "tool_use_id": "c", "content": [part("r")]}]),
            S([part(BILLING), part("5 left"), part("!")]),
            S(BILLING),
        ],
        tools=({"name": "f", "description": "d", "input_schema": {"type": "object"}},),
        fields={"output_config": {"effort": "low"}},
    )
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
    middle = [
        U("a\nb"),
        A("", reasoning_content="hm", tool_calls=[call]),
        {"role": "tool", "tool_call_id": "c", "content": "r"},
    ]
    kept = parse_policy("vllm").prepare(request, fake_template("in place"))
    assert data(kept) == [S("YouBe"), *middle, S("5 left!")]
    assert [message.index for message in kept.request.messages] == [TOP_LEVEL, 0, 1, 2, 3]
    assert kept.request.kwargs == {"reasoning_effort": "low"}
    assert kept.request.tools == (
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}},
    )
    merged = parse_policy("vllm").prepare(request, fake_template("raises"))
    assert data(merged) == [S("YouBe5 left!"), *middle]
    first = merged.request.messages[0]
    assert [first.origin(offset) for offset in (0, 4, 5, 11)] == [TOP_LEVEL, TOP_LEVEL, 3, 3]


def test_responses_are_folded(fake_template: Any) -> None:
    request = request_of(
        [
            {"type": "message", "role": "developer", "content": "d"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "u"}]},
            {"type": "message", "role": "system", "content": "n"},
        ],
        dialect="openai-responses",
        system="I",
        fields={"reasoning": {"effort": "high"}},
    )
    template = fake_template("raises")
    after = parse_policy("vllm").prepare(request, template)
    assert data(after) == [S("I\n\nd\n\nn"), U("u")]
    assert after.request.kwargs == {"reasoning_effort": "high"}
    assert not template.calls


def test_the_requests_own_kwargs_win(fake_template: Any) -> None:
    request = request_of([U("u")], kwargs={"reasoning_effort": "low"}, fields={"reasoning_effort": "high"})
    after = parse_policy("vllm").prepare(request, fake_template())
    assert after.request.kwargs == {"reasoning_effort": "low"}
    assert after.actions == ()


def test_a_conversation_without_a_later_system_is_not_probed(fake_template: Any) -> None:
    template = fake_template("raises")
    messages = [S([part("a"), part("b")]), U("u")]
    after = parse_policy("vllm:route=messages").prepare(request_of(messages), template)
    assert data(after)[0] == S("ab")
    assert not template.calls
