"""oMLX's routes: what its conversions, kwargs and second attempts make of requests in each dialect."""

import base64
import itertools
from pathlib import Path
from typing import Any

import pytest
from chat_messages import BOUNDARY, CALL, A, S, T, U, data, part, request_of
from tplaudit.probes.conversation import TOP_LEVEL, Dialect, Message, Request
from tplaudit.probes.errors import RenderError
from tplaudit.probes.policies.base import Prepared, render_prepared
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.policies.servers.omlx_probe import LEADING_MARKER
from tplaudit.probes.policies.servers.omlx_routes import without_counter
from tplaudit.probes.templates.template import ChatTemplate
from tplaudit.probes.transcripts.reader import open_transcript

TOOLS = "{# m.role == 'tool', tool_calls #}"
WRITE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
STRICT = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('first') }}"
    "{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}"
)
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "r"}


def template(source: str = TOOLS + WRITE) -> ChatTemplate:
    return ChatTemplate({"default": source}, source="a-model")


def request(*messages: dict[str, Any], dialect: Dialect = "openai-chat", **fields: Any) -> Request:
    return request_of(messages, dialect=dialect, **fields)


def anthropic(*messages: tuple[str, Any], **fields: Any) -> Request:
    turns = ({"role": role, "content": content} for role, content in messages)
    return request(*turns, dialect="anthropic-messages", **fields)


def responses(*messages: tuple[str, str], **fields: Any) -> Request:
    turns = ({"type": "message", "role": role, "content": content} for role, content in messages)
    return request(*turns, dialect="openai-responses", **fields)


def chat(*messages: tuple[str, Any], **fields: Any) -> Request:
    return request(*({"role": role, "content": content} for role, content in messages), **fields)


def prepare(given: Request, source: ChatTemplate | None = None, name: str = "omlx") -> Prepared:
    return parse_policy(name).prepare(given, source or template())


TOOL_TURN = T("r")


def test_an1_the_billing_header_is_left_out() -> None:
    blocks = [part("x-anthropic-billing-header: v"), part("You"), part("Be")]
    after = prepare(anthropic(("user", "hi"), system=blocks))
    assert data(after) == [S("You\nBe"), U("hi")]
    assert after.request.messages[0].index == TOP_LEVEL
    assert after.request.role_of(TOP_LEVEL) == "system"


def test_an2_a_tool_result_and_the_text_after_it() -> None:
    assert data(prepare(anthropic(("user", [RESULT, part("go")])))) == [TOOL_TURN, U("go")]


def test_an3_the_same_for_a_template_without_a_tool_role() -> None:
    after = prepare(anthropic(("user", [RESULT, part("go")])), template(WRITE))
    assert data(after) == [U("[Tool Result (c1)]: r\ngo", **BOUNDARY)]
    error = {**RESULT, "is_error": True}
    after = prepare(anthropic(("user", [error])), template(WRITE))
    assert data(after) == [U("[Tool Error (c1)]: r", **BOUNDARY)]


def test_an4_a_system_turn_in_place() -> None:
    after = prepare(anthropic(("user", "a"), ("system", "n"), ("assistant", "b")))
    assert data(after) == [U("a"), S("n"), A("b")]


def test_an5_thinking() -> None:
    given = anthropic(("assistant", [{"type": "thinking", "thinking": "t"}, part("x")]))
    assert data(prepare(given)) == [A("<think>\nt\n</think>\nx")]
    native = template("{# preserve_thinking #}" + TOOLS + WRITE)
    assert data(prepare(given, native)) == [A("x", reasoning_content="t")]
    assert data(prepare(given, name="omlx:model_type=k2_horizon")) == [A("x", reasoning_content="t")]
    older = prepare(given, name="omlx:model_type=k2_horizon,version=sept")
    assert data(older) == [A("<think>\nt\n</think>\nx")]
    named = anthropic(("assistant", [{"type": "thinking", "thinking": "t"}]), fields={"model": "MiniMax-M3"})
    assert data(prepare(named)) == [A("", reasoning_content="t")]


def test_rs1_instructions_and_a_leading_developer_item() -> None:
    after = prepare(responses(("developer", "d"), ("user", "u"), system="I"))
    assert data(after) == [S("I\n\nd"), U("u")]
    leading = after.request.messages[0]
    assert [leading.origin(n) for n in range(4)] == [TOP_LEVEL, 0, 0, 0]


def test_rs2_a_trailing_developer_item_is_probed() -> None:
    given = responses(("user", "u"), ("developer", "d"), system="I")
    after = prepare(given)
    assert data(after) == [S("I"), U("u"), S("d")]
    probed = [action for action in after.actions if action.kind == "probed"]
    assert [action.messages for action in probed] == [(1,)]
    assert probed[0].why == "user/tail: the template leaves the system turn in place"
    assert data(prepare(given, template(STRICT))) == [S("I"), U("u\n\n[System note]\nd\n[/System note]")]


def test_responses_keep_reasoning_whatever_the_template() -> None:
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "t"}]}
    given = request(
        thought, {"type": "message", "role": "assistant", "content": "a"}, dialect="openai-responses"
    )
    assert data(prepare(given)) == [A("a", reasoning_content="t")]


def test_responses_are_never_continued() -> None:
    given = responses(("user", "u"), ("assistant", "a")).replace(partial=True)
    assert prepare(given).request.partial is False


def test_neighbouring_users_of_an_anthropic_request_are_joined() -> None:
    assert data(prepare(anthropic(("user", "a"), ("user", [part("b"), part("c")])))) == [U("a\n\nb\nc")]


def test_calls_of_an_anthropic_request_have_no_type() -> None:
    use = {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}}
    (turn,) = data(prepare(anthropic(("assistant", [use]))))
    call = {"id": "c1", "function": {"name": "f", "arguments": {"a": 1}}}
    assert turn == A("", tool_calls=[call], **BOUNDARY)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("S\n\n<total_tokens>15 tokens left</total_tokens>", "S"),
        ("<total_tokens>15 tokens left</total_tokens>\nS", "\nS"),
        ("S <total_tokens>many tokens left</total_tokens>", None),
        ("\n\n\n<total_tokens>1 tokens left</total_tokens>", "\n"),
    ],
)
def test_the_token_counter(given: str, kept: str | None) -> None:
    assert without_counter(given) == (given if kept is None else kept)


def test_the_token_counter_is_left_out_of_system_texts_of_the_messages_route() -> None:
    counter = "\n\n<total_tokens>15 tokens left</total_tokens>"
    given = anthropic(("user", "a" + counter), ("system", "n" + counter), system="S" + counter)
    assert data(prepare(given)) == [S("S"), U("a" + counter), S("n")]
    assert data(prepare(given, name="omlx:version=0.5.3"))[0] == S("S" + counter)
    assert data(prepare(chat(("system", "S" + counter), ("user", "a"))))[0] == S("S" + counter)


def test_documents() -> None:
    source = {"media_type": "text/plain", "data": base64.b64encode("hé".encode()).decode()}
    given = [
        {"type": "document", "title": "T", "source": source},
        {"type": "document", "source": source},
        {"type": "document", "source": {"media_type": "application/pdf", "data": "x"}},
        {"type": "document", "source": {"media_type": "text/plain", "data": "x"}},
        {"type": "document"},
    ]
    (turn,) = data(prepare(anthropic(("user", given))))
    what = "oMLX does not provide PDF parsing. Send as text instead."
    assert turn["content"].split("\n") == [
        "[Document: T]",
        "hé",
        "hé",
        f"[Document: untitled (application/pdf) — {what}]",
        "[Document: untitled — failed to decode]",
        f"[Document: untitled () — {what}]",
    ]


def test_the_chat_route() -> None:
    given = request(
        {"role": "developer", "content": [part("d"), part("e")]},
        U("a"),
        U("b"),
        A(""),
        A(None, tool_calls=[CALL]),
        {**TOOL_TURN, "content": [part("r"), part("s")]},
        tools=({"type": "function", "function": {"name": "f", "strict": True}},),
    )
    after = prepare(given)
    call = {"id": "c1", "function": {"name": "f", "arguments": {}}}
    assert data(after) == [
        S("d\ne"),
        U("a\n\nb"),
        A("", tool_calls=[call], **BOUNDARY),
        {**TOOL_TURN, "content": "r\ns"},
    ]
    assert after.request.tools == (
        {
            "type": "function",
            "function": {"name": "f", "description": "", "parameters": {"type": "object", "properties": {}}},
        },
    )


def test_the_multimodal_engine_keeps_lists_and_joins_nothing() -> None:
    picture = {"type": "image_url", "image_url": {"url": "x"}}
    given = chat(("user", [part("a"), picture]), ("system", "n"), ("user", "b"), ("user", "c"))
    assert data(prepare(given, name="omlx:engine=vlm")) == [
        U([part("a"), picture]),
        U("[System note]\nn\n[/System note]\n\nb"),
        U("c"),
    ]
    assert data(prepare(given)) == [U("a\n\n[System note]\nn\n[/System note]\n\nb\n\nc")]


def test_a_foreign_route_takes_chat_messages_as_they_are() -> None:
    call = {**CALL, "function": {"name": "f", "arguments": '{"a": 1}'}}
    given = request(U("a"), U("b"), A("", tool_calls=[call]), TOOL_TURN, S("n"))
    for name in ("omlx:route=messages", "omlx:route=responses"):
        parsed = {**CALL, "function": {"name": "f", "arguments": {"a": 1}}}
        assert data(prepare(given, name=name)) == [
            U("a"),
            U("b"),
            A("", tool_calls=[parsed]),
            TOOL_TURN,
            S("n"),
        ]


def test_a_request_of_another_dialect_is_converted_on_every_route() -> None:
    given = anthropic(("user", [RESULT, part("go")]), system="S")
    for name in ("omlx:route=chat", "omlx:route=responses"):
        assert data(prepare(given, name=name)) == [S("S"), TOOL_TURN, U("go")]


KEEPS = (
    "{# preserve_thinking #}{% for m in messages %}{% if m.role == 'system' and not loop.first and not "
    "preserve_thinking %}{{ raise_exception('no') }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}"
)


def test_the_probe_has_the_defaults_on_the_messages_route_only() -> None:
    source = template(KEEPS)
    noted = "u\n\n[System note]\nn\n[/System note]"
    after = prepare(anthropic(("user", "u"), ("system", "n")), source)
    assert data(after) == [U("u"), S("n")]
    assert after.request.kwargs == {"preserve_thinking": True}
    for given in (chat(("user", "u"), ("system", "n")), responses(("user", "u"), ("system", "n"))):
        after = prepare(given, source)
        assert data(after) == [U(noted)]
        assert after.request.kwargs == {"preserve_thinking": True}
    asked = chat(("user", "u"), ("system", "n"), kwargs={"preserve_thinking": True})
    assert data(prepare(asked, source)) == [U("u"), S("n")]


@pytest.mark.parametrize(
    ("dialect", "kwargs", "fields", "expected"),
    [
        ("chat", {}, {}, {"preserve_thinking": True}),
        ("chat", {"enable_thinking": False}, {}, {"enable_thinking": False}),
        ("chat", {"preserve_thinking": False}, {}, {"preserve_thinking": False}),
        ("chat", {}, {"thinking_budget": 5}, {"enable_thinking": True, "preserve_thinking": True}),
        ("chat", {}, {"thinking": {"type": "disabled"}}, {"preserve_thinking": True}),
        ("messages", {}, {"thinking": {"type": "disabled"}}, {"enable_thinking": False}),
        (
            "messages",
            {"enable_thinking": False},
            {"thinking": {"type": "adaptive"}},
            {"enable_thinking": True, "preserve_thinking": True},
        ),
        ("messages", {}, {"reasoning": {"effort": "high"}}, {"preserve_thinking": True}),
        (
            "responses",
            {},
            {"reasoning": {"effort": "High"}},
            {"reasoning_effort": "high", "preserve_thinking": True},
        ),
        (
            "responses",
            {"reasoning_effort": "low"},
            {"reasoning": {"effort": "high"}},
            {"reasoning_effort": "low", "preserve_thinking": True},
        ),
        ("responses", {}, {"reasoning": {"effort": None}}, {"preserve_thinking": True}),
    ],
)
def test_kwargs(
    dialect: str, kwargs: dict[str, Any], fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    makers: dict[str, Any] = {"chat": chat, "messages": anthropic, "responses": responses}
    given = makers[dialect](("user", "u"), kwargs=kwargs, fields=fields)
    after = prepare(given, template("{# preserve_thinking #}" + WRITE))
    assert after.request.kwargs == expected
    named = " ".join(action.why for action in after.actions if action.kind == "kwargs")
    assert ("preserve_thinking" in named) == ("preserve_thinking" in set(expected) - set(kwargs))


def test_the_oldest_version_hands_on_no_effort() -> None:
    given = responses(("user", "u"), fields={"reasoning": {"effort": "high"}})
    assert prepare(given, name="omlx:version=0.5.3").request.kwargs == {}


def test_a_type_error_drops_kwargs_and_tools() -> None:
    source = template("{{ 'a' + 1 if x else '' }}{{ 'tools' if tools else '' }}" + WRITE)
    tools = ({"type": "function", "function": {"name": "f"}},)
    given = chat(("user", "u"), kwargs={"x": 1}, tools=tools)
    prompt, used = render_prepared(prepare(given, source), source)
    assert prompt == "<user>u"
    assert (used.request.kwargs, used.request.tools) == ({}, None)
    assert used.actions[-1].kind == "retried"
    assert used.actions[-1].why == "without chat-template kwargs and tools after a TypeError"
    prompt, used = render_prepared(prepare(given, source, "omlx:engine=vlm"), source)
    assert prompt == "tools<user>u"
    assert used.actions[-1].why == "without chat-template kwargs after a TypeError"


def test_other_errors_are_not_answered() -> None:
    source = template("{% if x %}{{ raise_exception('no') }}{% endif %}" + WRITE)
    with pytest.raises(RenderError):
        render_prepared(prepare(chat(("user", "u"), kwargs={"x": 1}), source), source)
    assert prepare(chat(("user", "u"))).retries == ()


def test_a_refused_effort_is_replaced_then_left_out() -> None:
    given = chat(("user", "u"), kwargs={"reasoning_effort": "Medium"})
    for accepted, prompt, why in (
        ("high", "high", "reasoning_effort=high after an error"),
        ("low", "", "without reasoning_effort after an error"),
    ):
        source = template(
            f"{{% if reasoning_effort is defined and reasoning_effort != '{accepted}' %}}"
            "{{ raise_exception('no') }}{% endif %}{{ reasoning_effort }}"
        )
        written, used = render_prepared(prepare(given, source), source)
        assert written == prompt
        assert used.actions[-1].why == why
    with pytest.raises(RenderError):
        render_prepared(prepare(given, source, "omlx:version=0.5.3"), source)


def test_the_multimodal_engine_never_continues() -> None:
    given = chat(("user", "u"), ("assistant", "a")).replace(partial=True)
    assert prepare(given).request.partial is True
    assert prepare(given, name="omlx:engine=vlm").request.partial is False


def test_before_august_a_tool_turn_may_not_come_before() -> None:
    turns = [U("u"), A("", tool_calls=[CALL]), TOOL_TURN, S("n")]
    after = prepare(request(*turns))
    assert data(after)[-1] == S("n")
    for name in ("omlx:tool_predecessor=off", "omlx:version=0.5.3"):
        older = prepare(request(*turns), name=name)
        assert data(older)[0] == S("n")
        assert "after a turn of role tool the server never leaves a system turn in place" in [
            action.why for action in older.actions
        ]
    both = prepare(request(*turns), name="omlx:version=0.5.3,tool_predecessor=on")
    assert data(both)[-1] == S("n")


def test_the_note_after_a_tool_result_that_is_proposed() -> None:
    turns = [U("u"), A("", tool_calls=[CALL]), TOOL_TURN, S("n")]
    source = template(TOOLS + STRICT)
    after = prepare(request(*turns), source, "omlx:tool_note=on")
    assert data(after)[-1] == {**TOOL_TURN, "content": "r\n\n[System note]\nn\n[/System note]"}
    assert after.actions[-1].why == "appended to the tool turn before it (message 2)"
    assert data(prepare(request(*turns), source))[0] == S("n")


TWICE = (
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% if m.role == 'system' %}{% set ns.n = ns.n + 1 %}"
    "{% endif %}{% if ns.n > 1 %}{{ raise_exception('twice') }}{% endif %}<{{ m.role }}>{{ m.content }}"
    "{% endfor %}"
)


def test_the_leading_shape_that_is_proposed() -> None:
    given = chat(("system", "s"), ("user", "u"), ("system", "n"))
    source = template(TWICE)
    assert data(prepare(given, source)) == [S("s"), U("u"), S("n")]
    noted = U("u\n\n[System note]\nn\n[/System note]")
    assert data(prepare(given, source, "omlx:leading_shape=on")) == [S("s"), noted]
    without = chat(("user", "u"), ("system", "n"))
    assert data(prepare(without, source, "omlx:leading_shape=on")) == [U("u"), S("n")]


def test_the_leading_shape_has_an_answer_of_its_own(fake_template: Any) -> None:
    policy = parse_policy("omlx:leading_shape=on")
    source = fake_template()
    policy.prepare(chat(("system", "s"), ("user", "u"), ("system", "n")), source)
    policy.prepare(chat(("user", "u"), ("system", "n")), source)
    policy.prepare(chat(("user", "v"), ("system", "m")), source)
    firsts = [call["messages"][0]["content"] for call in source.calls]
    assert len(firsts) == 2
    assert firsts[0] == LEADING_MARKER != firsts[1]


def test_the_hook_runs_on_every_route(fake_template: Any) -> None:
    def hook(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        reminder = {"role": "latest_reminder", "content": messages[-1]["content"]}
        return [*messages[:-2], reminder, messages[-2]]

    source = fake_template(relocate=hook)
    for given in (
        chat(("user", "u"), ("system", "n")),
        anthropic(("user", "u"), ("system", "n")),
        responses(("user", "u"), ("system", "n")),
    ):
        after = prepare(given, source)
        assert data(after) == [{"role": "latest_reminder", "content": "n"}, U("u")]
        assert [action.kind for action in after.actions] == ["relocated"]


def test_strict_falls_back_to_the_hoist_on_every_route() -> None:
    for given in (chat(("user", "u"), ("system", "n")), anthropic(("user", "u"), ("system", "n"))):
        assert data(prepare(given, template(STRICT), "omlx-strict")) == [S("n"), U("u")]


def test_the_bundled_session_still_hoists_whenever_a_reminder_follows_a_tool_result() -> None:
    fixtures = Path(__file__).parents[4] / "fixtures"
    source = template((fixtures / "templates" / "strict.jinja").read_text(encoding="utf-8"))
    bare, chosen = parse_policy("omlx:route=none"), parse_policy("omlx")
    blocks = []
    for given in open_transcript(fixtures / "transcripts" / "claude-code.jsonl"):
        after, before = (policy.prepare(given, source).request.messages for policy in (chosen, bare))
        assert after[0].content == before[0].content
        assert sum(message.role == "system" for message in after) == 1
        blocks.append(after[0].content)
    grown = [(one, two) for one, two in itertools.pairwise(blocks) if one != two]
    assert len(grown) > 5
    assert all(two.startswith(one) for one, two in grown)


def test_the_chat_route_loses_no_call_where_two_assistant_turns_meet() -> None:
    """Without a route the hoist makes two assistants neighbours, and their join loses the calls."""
    turns = [U("u"), A("a"), S("n"), A("", tool_calls=[CALL])]
    source = template(TOOLS + STRICT)
    assert [each["role"] for each in data(prepare(request(*turns), source))] == [
        "system",
        "user",
        "assistant",
        "assistant",
    ]
    assert data(prepare(request(*turns), source, "omlx:route=none"))[2:] == [A("a")]


def test_arguments_of_chat_are_an_object_or_refused() -> None:
    def chat(arguments: Any) -> Any:
        call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
        return prepare(request(U("u"), A("", tool_calls=[call]), TOOL_TURN), name="omlx:route=chat")

    for arguments, parsed in (("", {}), (" {} ", {}), ({"a": 1}, {"a": 1}), ('{"a": 1}', {"a": 1})):
        after = chat(arguments)
        assert after.error is None
        assert data(after)[1]["tool_calls"][0]["function"]["arguments"] == parsed
    for arguments in ("oops", "[1]", "null", 7):
        with pytest.raises(RenderError, match="HTTP 422"):
            render_prepared(chat(arguments), template(TOOLS + WRITE))


def test_a_tool_result_without_content_is_refused() -> None:
    result = {key: value for key, value in RESULT.items() if key != "content"}
    assert prepare(anthropic(("user", [result]))).error is not None


def test_every_schema_of_a_property_gets_a_description() -> None:
    schema = {
        "type": "object",
        "properties": {
            "where": {"type": "object", "properties": {"city": {"type": "string"}}},
            "tags": {"type": "array", "items": {"anyOf": [{"type": "string", "description": "T"}]}},
        },
    }
    expected = {
        "type": "object",
        "properties": {
            "where": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": ""}},
                "description": "",
            },
            "tags": {
                "type": "array",
                "items": {"anyOf": [{"type": "string", "description": "T"}], "description": ""},
                "description": "",
            },
        },
    }
    after = prepare(anthropic(("user", "u"), tools=({"name": "f", "input_schema": schema},)))
    assert after.request.tools[0]["function"]["parameters"] == expected


def test_a_list_as_output_is_json_text_in_0_5_3() -> None:
    output = [{"type": "input_text", "text": "a"}]
    item = Message({"type": "function_call_output", "call_id": "c1", "output": output}, 0)
    given = Request((item,), dialect="openai-responses")
    assert data(prepare(given)) == [{"role": "tool", "tool_call_id": "c1", "content": "a"}]
    older = prepare(given, name="omlx:version=0.5.3")
    assert data(older)[0]["content"] == '[{"type": "input_text", "text": "a"}]'


def test_a_turn_to_be_continued_that_is_dropped_or_joined_is_not() -> None:
    for last in (A(""), A("more")):
        given = request(U("u"), A("a"), last).replace(partial=True)
        assert prepare(given, name="omlx:route=chat").request.partial is False
    assert prepare(request(U("u"), A("a")).replace(partial=True), name="omlx:route=chat").request.partial
