"""vLLM's three routes and the versions of its messages route."""

import json
from pathlib import Path
from typing import Any

import pytest
from chat_messages import data, request_of
from tplaudit.probes.conversation import TOP_LEVEL, Request
from tplaudit.probes.policies.registry import parse_policy

VECTORS = json.loads((Path(__file__).parents[3] / "data" / "policy_vectors.json").read_text(encoding="utf-8"))
VLLM = [vector for vector in VECTORS if vector["policy"].startswith("vllm/")]
BEHAVIOURS = {"vllm/messages merge": "raises", "vllm/messages inline": "in place"}
BILLING = "x-anthropic-billing-header: cc_version=2.1; cch=abcde;"


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


@pytest.mark.parametrize("route", ["messages", "none"])
@pytest.mark.parametrize("vector", VLLM, ids=lambda vector: vector["id"])
def test_vector(vector: dict[str, Any], route: str, fake_template: Any) -> None:
    template = fake_template(BEHAVIOURS[vector["policy"]])
    after = parse_policy(f"vllm:route={route}").prepare(request_of(vector["messages"]), template)
    assert data(after) == vector["expected"]
    assert len(template.calls) == 1


def test_two_leading_systems_are_joined_without_a_separator(fake_template: Any) -> None:
    messages = [
        {"role": "system", "content": "a"},
        {"role": "system", "content": "b"},
        {"role": "user", "content": "u"},
    ]
    after = parse_policy("vllm:route=messages").prepare(request_of(messages), fake_template("raises"))
    assert data(after) == [{"role": "system", "content": "ab"}, {"role": "user", "content": "u"}]
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
    messages = [
        {"role": "system", "content": "a"},
        {"role": "user", "content": "u"},
        {"role": "system", "content": "n"},
    ]
    after = parse_policy(f"vllm:route=messages,version={version}").prepare(request_of(messages), template)
    assert [message.role for message in after.request.messages] == roles
    assert bool(template.calls) == asked
    assert any(action.kind == "probed" for action in after.actions) == asked


def test_chat_completions_passes_on(fake_template: Any) -> None:
    messages = [
        {"role": "developer", "content": "d"},
        {"role": "user", "content": "u"},
        {"role": "system", "content": [text("n")]},
    ]
    template = fake_template("raises")
    after = parse_policy("vllm").prepare(request_of(messages), template)
    assert data(after) == messages
    assert not template.calls


def test_arguments_are_parsed_except_for_the_bare_rules(fake_template: Any) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    messages = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    parsed = {**call, "function": {"name": "f", "arguments": {"x": 1}}}
    for route, expected in (("chat", parsed), ("messages", parsed), ("none", call)):
        after = parse_policy(f"vllm:route={route}").prepare(request_of(messages), fake_template())
        assert data(after)[1]["tool_calls"] == [expected]


def anthropic(system: Any, messages: list[dict[str, Any]], **fields: Any) -> Request:
    return request_of(messages, dialect="anthropic-messages", system=system, **fields)


def test_an_anthropic_request(fake_template: Any) -> None:
    request = anthropic(
        [text(BILLING), text("You"), text("Be")],
        [
            {"role": "user", "content": [text("a"), text("b")]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm"},
                    {"type": "tool_use", "id": "c", "name": "f", "input": {"x": 1}},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c", "content": [text("r")]}],
            },
            {"role": "system", "content": [text(BILLING), text("5 left"), text("!")]},
            {"role": "system", "content": BILLING},
        ],
        tools=({"name": "f", "description": "d", "input_schema": {"type": "object"}},),
        fields={"output_config": {"effort": "low"}},
    )
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
    middle = [
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "r"},
    ]
    kept = parse_policy("vllm").prepare(request, fake_template("in place"))
    assert data(kept) == [
        {"role": "system", "content": "YouBe"},
        *middle,
        {"role": "system", "content": "5 left!"},
    ]
    assert [message.index for message in kept.request.messages] == [TOP_LEVEL, 0, 1, 2, 3]
    assert kept.request.kwargs == {"reasoning_effort": "low"}
    assert kept.request.tools == (
        {
            "type": "function",
            "function": {"name": "f", "description": "d", "parameters": {"type": "object"}},
        },
    )
    merged = parse_policy("vllm").prepare(request, fake_template("raises"))
    assert data(merged) == [{"role": "system", "content": "YouBe5 left!"}, *middle]
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
    assert data(after) == [{"role": "system", "content": "I\n\nd\n\nn"}, {"role": "user", "content": "u"}]
    assert after.request.kwargs == {"reasoning_effort": "high"}
    assert not template.calls


def test_the_requests_own_kwargs_win(fake_template: Any) -> None:
    request = request_of(
        [{"role": "user", "content": "u"}],
        kwargs={"reasoning_effort": "low"},
        fields={"reasoning_effort": "high"},
    )
    after = parse_policy("vllm").prepare(request, fake_template())
    assert after.request.kwargs == {"reasoning_effort": "low"}
    assert after.actions == ()


def test_a_conversation_without_a_later_system_is_not_probed(fake_template: Any) -> None:
    template = fake_template("raises")
    messages = [{"role": "system", "content": [text("a"), text("b")]}, {"role": "user", "content": "u"}]
    after = parse_policy("vllm:route=messages").prepare(request_of(messages), template)
    assert data(after)[0] == {"role": "system", "content": "ab"}
    assert not template.calls
