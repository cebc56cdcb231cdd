"""Rapid-MLX: its message functions, what it hands to a template, and what it tries after an error."""

from typing import Any

import pytest
from chat_messages import A, S, T, U, data, part, prepared
from tplaudit.probes.conversation import TOP_LEVEL, Request
from tplaudit.probes.errors import RenderError
from tplaudit.probes.policies.base import render_prepared

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "description": "Does it.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    },
}
COUNTER = "<total_tokens>14,982,239 tokens left</total_tokens>"


def reminder(text: str) -> str:
    return f"<system-reminder>\n{text}\n</system-reminder>"


class Strict:
    """A template that renders roles and contents, and complains as it is told to."""

    text = ""

    def __init__(self, *complaints: str) -> None:
        self.complaints = complaints

    def render_request(self, request: Request, *, profile: str) -> str:
        roles = [message.role for message in request.messages]
        turns = [role for role in roles if role != "system"]
        arguments = [
            call["function"]["arguments"]
            for message in request.messages
            for call in message.data.get("tool_calls") or ()
        ]
        checks = {
            "first": ("TemplateError", "System message must be at the beginning.", "system" in roles[1:]),
            "alternate": (
                "TemplateError",
                "Conversation roles must alternate user/assistant/user/assistant/...",
                turns != [("user", "assistant")[n % 2] for n in range(len(turns))],
            ),
            "text": (
                "TypeError",
                'can only concatenate str (not "dict") to str',
                any(isinstance(each, dict) for each in arguments),
            ),
            "thinking": ("TypeError", "enable_thinking", "enable_thinking" in request.kwargs),
            "tools": ("TypeError", "tools", bool(request.tools)),
            "never": ("TemplateError", "never", True),
        }
        for name in self.complaints:
            kind, message, applies = checks[name]
            if applies:
                raise RenderError(kind, message)
        return "".join(f"<{message.role}>{message.content}" for message in request.messages)


VECTORS: dict[str, tuple[str, list[dict[str, Any]], list[dict[str, Any]]]] = {
    "R1": (
        "off",
        [S("base"), U("u1"), A("a1"), S("nudge"), U("u2")],
        [S("base\n\nnudge"), U("u1"), A("a1"), U("u2")],
    ),
    "R2": (
        "on",
        [S("base"), U("u1"), A("a1"), S("nudge"), U("u2")],
        [S("base"), U("u1"), A("a1"), U(f"{reminder('nudge')}\n\nu2")],
    ),
    "R3": (
        "on",
        [S("base"), U("u1"), A("a1"), S("n1"), S("n2"), U("u2")],
        [S("base"), U("u1"), A("a1"), U(f"{reminder('n1')}\n{reminder('n2')}\n\nu2")],
    ),
    "R4": (
        "on",
        [S("base"), U("u1"), S("enter"), U("u2"), S("exit")],
        [S("base\n\nenter\n\nexit"), U("u1"), U("u2")],
    ),
    "R5": ("on", [U("t0"), S("gov"), A("r"), U("t1")], [S("gov"), U("t0"), A("r"), U("t1")]),
    "R7": ("off", [S(""), U("u1")], [U("u1")]),
    "R8": ("on", [U("u1"), S("n"), U("u2")], [U("u1"), U(f"{reminder('n')}\n\nu2")]),
}


@pytest.mark.parametrize("route", ["none", "messages"])
@pytest.mark.parametrize("name", VECTORS)
def test_vector(name: str, route: str) -> None:
    relocate, before, after = VECTORS[name]
    assert data(prepared(f"rapid-mlx:route={route},relocate={relocate}", before)) == after


def test_r6_a_list_gets_one_more_part() -> None:
    messages = [A("a"), S("n"), U([part("u2"), part("u3")])]
    after = prepared("rapid-mlx:route=none,relocate=on", messages)
    assert data(after) == [A("a"), U([part(reminder("n")), part("u2"), part("u3")])]
    (_, turn) = after.request.messages
    assert [turn.origin(0, n) for n in range(3)] == [1, 2, 2]


def test_a_list_of_texts_becomes_one_text_before_the_template_sees_it() -> None:
    messages = [A("a"), S("n"), U([part("u2"), part("u3")])]
    assert data(prepared("rapid-mlx:engine=vlm,route=messages,relocate=on", messages))[1] == U(
        f"{reminder('n')}u2u3"
    )
    assert data(prepared("rapid-mlx", messages))[2] == U("u2\nu3")
    picture = [part("p"), {"type": "image_url", "image_url": {"url": "x"}}]
    assert data(prepared("rapid-mlx:engine=vlm", [U(picture)])) == [U(picture)]
    assert data(prepared("rapid-mlx", [U(picture)])) == [U("p")]


def test_relocated_text_belongs_to_the_system_messages() -> None:
    messages = [S("base"), U("u1"), S("n1"), S("n2"), U("host")]
    turn = prepared("rapid-mlx:route=messages,relocate=on", messages).request.messages[-1]
    assert turn.index == 4
    assert turn.origins == (2, 3, 4)
    text = turn.content
    assert [turn.origin(text.index(word)) for word in ("n1", "n2", "host")] == [2, 3, 4]


def test_one_run_without_a_user_turn_behind_it_hoists_all_and_says_so() -> None:
    after = prepared("rapid-mlx:route=messages,relocate=on", VECTORS["R4"][1])
    assert [action.messages for action in after.actions if action.kind == "refused"] == [(4,)]


@pytest.mark.parametrize(
    "content",
    [
        COUNTER,
        f" {COUNTER}\n",
        "<total_tokens> 1 token left </total_tokens>",
        [part(COUNTER)],
        [{**part(COUNTER), "cache_control": {"type": "ephemeral"}}],
    ],
)
def test_the_token_counter_is_dropped_last_and_before_an_assistant(content: Any) -> None:
    for after in ([], [A("a"), U("v")]):
        messages = [S("base"), U("u"), S(content), *after]
        kept = [S("base"), U("u"), *after]
        assert data(prepared("rapid-mlx:route=messages", messages)) == kept
        assert len(data(prepared("rapid-mlx", messages))) == len(messages), "the chat route keeps it"
        hoisted = data(prepared("rapid-mlx:route=messages,counter=keep", messages))
        assert "tokens" in hoisted[0]["content"] or "token left" in hoisted[0]["content"]


@pytest.mark.parametrize(
    "messages",
    [
        [U("u"), S(COUNTER), U("v")],
        [U("u"), S(f"Note: {COUNTER}")],
        [U("u"), S([part(COUNTER), part("n")])],
        [U("u"), S([{**part(COUNTER), "name": "x"}])],
        [U("u"), S("<total_tokens>many tokens left</total_tokens>")],
    ],
)
def test_what_is_not_only_a_counter_stays(messages: list[dict[str, Any]]) -> None:
    assert data(prepared("rapid-mlx:route=messages", messages))[0]["role"] == "system"


def test_the_chat_route_hoists_only_after_the_template_complained() -> None:
    messages = [S("base"), U("u1"), A("a"), {"role": "developer", "content": "n"}]
    after = prepared("rapid-mlx", messages)
    assert [message.role for message in after.request.messages] == ["system", "user", "assistant", "system"]
    assert render_prepared(after, Strict())[1] is after  # type: ignore[arg-type]
    text, used = render_prepared(after, Strict("first"))  # type: ignore[arg-type]
    assert text == "<system>base\n\nn<user>u1<assistant>a"
    assert used.actions[-1].kind == "retried"
    assert used.request.messages[0].origins == (0, 3)


def test_structured_system_contents_are_joined_by_a_part() -> None:
    picture = {"type": "image_url", "image_url": {"url": "x"}}
    messages = [S([part("a"), picture]), U("u"), S("b")]
    _, used = render_prepared(prepared("rapid-mlx:engine=vlm", messages), Strict("first"))  # type: ignore[arg-type]
    (first, _) = used.request.messages
    assert first.content == [part("a"), picture, part("\n\n"), part("b")]
    assert [first.origin(0, n) for n in range(4)] == [0, 0, 2, 2]


def test_a_system_message_with_further_keys_is_not_collapsed() -> None:
    after = prepared("rapid-mlx:engine=vlm", [U("u"), S("n", name="x")])
    with pytest.raises(RenderError, match="must be at the beginning"):
        render_prepared(after, Strict("first"))  # type: ignore[arg-type]


def test_the_first_error_stands_where_the_retry_fails() -> None:
    after = prepared("rapid-mlx", [U("u"), S("n")])
    with pytest.raises(RenderError, match="must be at the beginning"):
        render_prepared(after, Strict("first", "never"))  # type: ignore[arg-type]


def test_alternation_joins_users_and_writes_tools_as_text() -> None:
    messages = [U("u"), A(" why ", tool_calls=[CALL]), T("r"), U("v")]
    after = prepared("rapid-mlx:tools=native", messages, tools=(TOOL,))
    text, used = render_prepared(after, Strict("alternate"))  # type: ignore[arg-type]
    told, *turns = data(used)
    assert told["content"].startswith("# Available Tools\n\n## f\nDoes it.\nParameters: {")
    assert turns == [U("u"), A('why\nTool call f: {"a":1}'), U("Tool result c1: r\n\nv")]
    assert used.request.tools is None
    assert text.count("<user>") == 2
    assert used.request.messages[-1].origins == (2, 3)
    assert used.request.messages[0].index == TOP_LEVEL


def test_alternation_after_the_collapse() -> None:
    messages = [U("u"), S("n"), U("v")]
    text, used = render_prepared(prepared("rapid-mlx", messages), Strict("first", "alternate"))  # type: ignore[arg-type]
    assert text == "<system>n<user>u\n\nv"
    assert [action.kind for action in used.actions][-2:] == ["retried", "retried"]


@pytest.mark.parametrize(
    ("complaints", "kwargs", "has_tools", "roles"),
    [
        (("thinking",), {"x": 1}, True, ["user", "assistant"]),
        (("tools",), {"x": 1, "enable_thinking": False}, False, ["system", "user", "assistant"]),
        (("thinking", "tools"), {"x": 1}, False, ["system", "user", "assistant"]),
    ],
)
def test_the_ladder_of_type_errors(
    complaints: tuple[str, ...], kwargs: dict[str, Any], has_tools: bool, roles: list[str]
) -> None:
    after = prepared("rapid-mlx", [U("u"), A("a")], tools=(TOOL,), kwargs={"x": 1})
    _, used = render_prepared(after, Strict(*complaints))  # type: ignore[arg-type]
    assert used.request.kwargs == kwargs
    assert bool(used.request.tools) == has_tools
    assert [message.role for message in used.request.messages] == roles


def test_arguments_are_an_object_and_on_demand_a_text() -> None:
    call = {**CALL, "function": {"name": "f", "arguments": '{"a": 1}'}}
    after = prepared("rapid-mlx:tools=native", [U("u"), A("", tool_calls=[call]), T("r")])
    assert after.request.messages[1].data["tool_calls"] == [CALL]
    _, used = render_prepared(after, Strict("text"))  # type: ignore[arg-type]
    assert used.request.messages[1].data["tool_calls"][0]["function"]["arguments"] == '{"a":1}'
    for text, value in (("[1]", [1]), ("oops", "oops"), ("", "")):
        call["function"] = {"name": "f", "arguments": text}
        after = prepared("rapid-mlx:tools=native", [A("", tool_calls=[call])])
        (turn,) = after.request.messages
        assert turn.data["tool_calls"][0]["function"]["arguments"] == {"value": value}


class Harmony(Strict):
    text = "<|start|>assistant<|channel|>final<|message|>"


class HarmonyEffort(Harmony):
    text = f"{Harmony.text}{{{{ reasoning_effort }}}}"


def test_harmony_gets_one_instruction() -> None:
    messages = [S("a"), U("u"), S("b"), S("")]
    after = prepared("rapid-mlx", messages, Harmony())
    assert data(after) == [S("a\n\nb\n\n"), U("u")]
    assert after.request.messages[0].origins == (0, 2, 3)
    assert data(prepared("rapid-mlx:harmony=off", messages, Harmony())) == messages
    assert data(prepared("rapid-mlx:harmony=on", messages)) == data(after)
    assert data(prepared("rapid-mlx", [S("a"), U("u")], Harmony())) == [S("a"), U("u")]


@pytest.mark.parametrize("later", [S("b", name="x"), S([{"type": "image_url", "image_url": {"url": "x"}}])])
def test_harmony_refuses_instructions_that_it_cannot_join(later: dict[str, Any]) -> None:
    after = prepared("rapid-mlx:engine=vlm", [U("u"), later], Harmony())
    with pytest.raises(RenderError, match="Harmony"):
        render_prepared(after, Harmony())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "thinks"),
    [
        ({}, True),
        ({"fields": {"model": "Qwen3-Coder"}}, False),
        ({"tools": (TOOL,)}, False),
        ({"tools": (TOOL,), "fields": {"reasoning_effort": "high"}}, True),
        ({"tools": (TOOL,), "kwargs": {"enable_thinking": True}}, True),
        ({"fields": {"reasoning_effort": "none"}}, False),
        ({"fields": {"enable_thinking": False}}, False),
    ],
)
def test_enable_thinking_is_always_set(fields: dict[str, Any], thinks: bool) -> None:
    assert prepared("rapid-mlx", [U("u")], **fields).request.kwargs == {"enable_thinking": thinks}


@pytest.mark.parametrize(
    ("fields", "thinks"),
    [
        ({"thinking": {"type": "disabled"}}, False),
        ({"thinking": {"type": "adaptive"}}, True),
        ({"thinking": {"type": "disabled"}, "output_config": {"effort": "low"}}, True),
    ],
)
def test_on_the_messages_route_an_effort_wins_over_thinking(fields: dict[str, Any], thinks: bool) -> None:
    after = prepared("rapid-mlx:route=messages", [U("u")], fields=fields, tools=(TOOL,))
    assert after.request.kwargs == {"enable_thinking": thinks}


def test_with_a_reasoning_parser_plain_chat_does_not_think() -> None:
    for fields, thinks in (({}, False), ({"reasoning_effort": "low"}, True)):
        after = prepared("rapid-mlx:reasoning_parser=on", [U("u")], fields=fields)
        assert after.request.kwargs == {"enable_thinking": thinks}


def test_harmony_gets_the_lowest_effort_where_thinking_is_off() -> None:
    after = prepared("rapid-mlx", [U("u")], HarmonyEffort(), tools=(TOOL,))
    assert after.request.kwargs == {"enable_thinking": False, "reasoning_effort": "low"}
    after = prepared("rapid-mlx", [U("u")], HarmonyEffort())
    assert after.request.kwargs == {"enable_thinking": True}


def test_an_effort_that_it_does_not_know_is_refused() -> None:
    after = prepared("rapid-mlx", [U("u")], fields={"reasoning_effort": "max"})
    assert after.error is not None


def test_without_native_tools_calls_and_results_become_text() -> None:
    messages = [U("u"), A("a", tool_calls=[CALL]), T("r")]
    after = prepared("rapid-mlx", messages)
    assert data(after) == [U("u"), A('a\n[Calling tool: f({"a": 1})]'), U("[Tool Result (c1)]: r")]
    assert data(prepared("rapid-mlx:tools=native", messages)) == messages


def test_arguments_of_the_renderer_are_no_kwargs() -> None:
    kwargs = {"tokenize": True, "tools": [], "add_generation_prompt": False, "y": 2}
    after = prepared("rapid-mlx", [U("u")], kwargs=kwargs)
    assert after.request.kwargs == {"y": 2, "enable_thinking": True}


def test_an_anthropic_request() -> None:
    messages = [
        U([{"type": "tool_result", "tool_use_id": "c1", "content": "r"}, part("go")]),
        A([{"type": "thinking", "thinking": "t"}, part("x"), part("y")]),
        S([part("n")]),
        U("v"),
    ]
    after = prepared(
        "rapid-mlx:tools=native",
        messages,
        dialect="anthropic-messages",
        system=[part("x-anthropic-billing-header: v1"), part("You"), part("Be")],
        tools=({"name": "f", "description": "Does it.", "input_schema": TOOL["function"]["parameters"]},),  # type: ignore[index]
    )
    assert data(after) == [S("You\nBe\n\nn"), U("go"), T("r"), A("x\ny"), U("v")]
    assert after.request.messages[0].origins == (TOP_LEVEL, 2)
    assert [message.index for message in after.request.messages[1:]] == [0, 0, 1, 3]
    assert after.request.tools == (TOOL,)
    assert (after.request.dialect, after.request.system) == ("openai-chat", None)


def test_a_responses_request_is_hoisted_and_its_calls_stay_apart() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'}
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "u"}]},
        call,
        call,
        {"type": "function_call_output", "call_id": "c1", "output": "r"},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "d"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "why"}]},
    ]
    after = prepared("rapid-mlx:tools=native", items, dialect="openai-responses", system="I")
    turn = A("", tool_calls=[CALL])
    assert data(after) == [S("I\n\nd"), U("u"), turn, turn, T("r")]
    assert after.request.messages[0].origins == (TOP_LEVEL, 4)


def test_a_message_cannot_be_continued() -> None:
    after = prepared("rapid-mlx", [U("u"), A("begun")], partial=True)
    assert not after.request.partial
    assert ("unsupported", (1,)) in [(action.kind, action.messages) for action in after.actions]


def test_the_reasoning_of_earlier_turns_is_dropped() -> None:
    after = prepared("rapid-mlx", [U("u"), A("a", reasoning_content="why")])
    assert data(after) == [U("u"), A("a")]
    assert ("dropped", (1,)) in [(action.kind, action.messages) for action in after.actions]
