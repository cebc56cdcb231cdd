"""Anthropic messages as chat messages, and whom each of them came from."""

import base64
from typing import Any

import pytest
from chat_messages import A, S, T, U, data, part
from tplaudit.probes.conversation import TOP_LEVEL, Message, Request
from tplaudit.probes.policies.api.anthropic_route import AnthropicRules, convert_anthropic, result_text
from tplaudit.probes.policies.base import Action, Prepared

RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "r"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
IMAGE_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def convert(*messages: tuple[str, Any], system: Any = None, tools: Any = None, **rules: Any) -> Prepared:
    turns = tuple(
        Message({"role": role, "content": content}, n) for n, (role, content) in enumerate(messages)
    )
    request = Request(turns, tools=tools, dialect="anthropic-messages", system=system)
    return convert_anthropic(request, AnthropicRules(**rules))


def test_the_system_text_becomes_the_first_message() -> None:
    header = part("x-anthropic-billing-header: v")
    after = convert(("user", "hi"), system=[header, part("You"), part("Be")])
    assert data(after) == [S("You\nBe"), U("hi")]
    assert [message.index for message in after.request.messages] == [TOP_LEVEL, 0]
    assert (after.request.system, after.request.dialect) == (None, "openai-chat")
    assert [(action.kind, action.messages) for action in after.actions] == [
        ("converted", (TOP_LEVEL,)),
        ("dropped", (TOP_LEVEL,)),
    ]


@pytest.mark.parametrize("system", [None, "", [], [part("x-anthropic-billing-header: v")], [7], 7])
def test_without_a_system_text_there_is_no_first_message(system: Any) -> None:
    assert data(convert(("user", "hi"), system=system)) == [U("hi")]


def test_a_header_within_a_string_is_kept() -> None:
    after = convert(("user", "hi"), system="x-anthropic-billing-header: v")
    assert data(after)[0] == S("x-anthropic-billing-header: v")
    assert [action.kind for action in after.actions] == ["converted"]


def test_a_message_that_is_text_already_is_the_very_same_object() -> None:
    message = Message(U("hi"), 0)
    request = Request((message,), dialect="anthropic-messages")
    after = convert_anthropic(request, AnthropicRules())
    assert after.request.messages[0] is message
    assert after.actions == ()


def test_texts_around_a_tool_result_become_turns_of_their_own() -> None:
    after = convert(("assistant", "a"), ("user", [part("x"), part("y"), RESULT, part("go")]))
    assert data(after)[1:] == [U("x\ny"), T("r"), U("go")]
    assert [message.index for message in after.request.messages] == [0, 1, 1, 1]
    assert after.actions == (Action("converted", (1,), "its blocks become turns: user, tool, user"),)


@pytest.mark.parametrize(("error", "word"), [(False, "Result"), (True, "Error")])
def test_results_for_a_template_without_a_tool_role(error: bool, word: str) -> None:
    blocks = [{**RESULT, "is_error": error}, part("go")]
    bracketed = f"[Tool {word} (c1)]: r"
    after = convert(("user", blocks), tool_role=False, marks_boundaries=True)
    assert data(after) == [U(bracketed, _preserve_role_boundary=True), U("go")]
    after = convert(("user", blocks), tool_role=False, marks_boundaries=True, split_results=False)
    assert data(after) == [U(f"{bracketed}\ngo", _preserve_role_boundary=True)]
    assert data(convert(("user", [RESULT]), tool_role=False)) == [U("[Tool Result (c1)]: r")]


@pytest.mark.parametrize(
    ("given", "arguments"), [({"a": 1}, {"a": 1}), ('{"a": 1}', {"a": 1}), ("no json", "no json")]
)
def test_tool_use_becomes_a_call(given: Any, arguments: Any) -> None:
    blocks = [part("on it"), {"type": "tool_use", "id": "c1", "name": "f", "input": given}]
    (turn,) = data(convert(("assistant", blocks)))
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    assert turn == A("on it", tool_calls=[call])
    (turn,) = data(convert(("assistant", blocks), call_type=False, marks_boundaries=True))
    assert turn["tool_calls"] == [{"id": "c1", "function": {"name": "f", "arguments": arguments}}]
    assert turn["_preserve_role_boundary"] is True


def test_tool_use_for_a_template_without_a_tool_role() -> None:
    blocks = [part("on it"), {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}}]
    (turn,) = data(convert(("assistant", blocks), tool_role=False, marks_boundaries=True))
    assert turn["content"] == 'on it\n[Calling tool: f({"a": 1})]'
    assert turn["_preserve_role_boundary"] is True


@pytest.mark.parametrize(
    ("reasoning", "turn"),
    [
        ("inline", {"content": "<think>\nt\n</think>\n\nx"}),
        ("field", {"content": "x", "reasoning_content": "t"}),
        ("dropped", {"content": "x"}),
    ],
)
def test_thinking_of_an_assistant(reasoning: str, turn: dict[str, Any]) -> None:
    blocks = [{"type": "thinking", "thinking": "t", "signature": "s"}, part("x")]
    after = convert(("assistant", blocks), reasoning=reasoning)
    assert data(after) == [{"role": "assistant", **turn}]
    assert [action.kind for action in after.actions] == (["dropped"] if reasoning == "dropped" else [])


def test_empty_thinking_leaves_nothing() -> None:
    blocks = [{"type": "thinking", "thinking": ""}, part("x")]
    for reasoning in ("inline", "field"):
        assert data(convert(("assistant", blocks), reasoning=reasoning)) == [A("x")]


def test_images() -> None:
    inner = {**RESULT, "content": [part("r"), IMAGE]}
    after = convert(("user", [part("look"), IMAGE]), ("user", [inner]), images=True)
    assert data(after) == [U([IMAGE_PART, part("look")]), T("r"), U([IMAGE_PART])]
    after = convert(("user", [part("look"), IMAGE]), ("user", [inner]))
    assert data(after) == [U("look"), T("r")]
    assert after.actions[0] == Action("dropped", (0,), "the server leaves out its blocks: image")
    assert ("dropped", (1,)) in [(action.kind, action.messages) for action in after.actions]


def test_an_image_by_address() -> None:
    block = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    (turn,) = data(convert(("user", [block]), images=True))
    assert turn["content"] == [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]


def test_documents_are_the_servers_choice() -> None:
    plain = base64.b64encode(b"hello").decode()
    block = {"type": "document", "source": {"media_type": "text/plain", "data": plain}}
    assert data(convert(("user", [block]), document=lambda given: "seen")) == [U("seen")]
    after = convert(("user", [block]))
    assert data(after) == [U("")]
    assert after.actions[0].why == "the server leaves out its blocks: document"


def test_system_turns_stay_in_place_and_are_cleaned() -> None:
    after = convert(
        ("user", "a"),
        ("system", [part("n"), part("m")]),
        ("assistant", "b"),
        system="S",
        clean_system=str.lower,
    )
    assert data(after) == [S("s"), U("a"), S("n\nm"), A("b")]
    assert [action.messages for action in after.actions if action.kind == "dropped"] == [(TOP_LEVEL,)]
    after = convert(("user", "A"), ("system", [part("N"), part("m")]), clean_system=str.lower)
    assert [action.messages for action in after.actions if action.kind == "dropped"] == [(1,)]


def test_tools() -> None:
    tools = (
        {"name": "f", "description": "F", "input_schema": {"type": "object"}},
        {"name": "g"},
        {"type": "web_search_20250305", "name": "web_search"},
    )
    assert convert(("user", "u"), tools=tools).request.tools == (
        {"type": "function", "function": {"name": "f", "description": "F", "parameters": {"type": "object"}}},
        {"type": "function", "function": {"name": "g", "description": "", "parameters": {}}},
    )
    assert convert(("user", "u"), tools=()).request.tools is None
    assert convert(("user", "u"), tools=tools[2:]).request.tools is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("r", "r"),
        ([part("a"), IMAGE, "b"], "a\nb"),
        (part("a"), "a"),
        ({"k": 1}, '{"k": 1}'),
        (None, ""),
        (7, "7"),
    ],
)
def test_contents_of_tool_results(content: Any, words: str) -> None:
    assert result_text(content) == words


def test_blocks_that_no_server_knows() -> None:
    after = convert(("user", [7, {"type": "search_result"}, part("u")]), ("assistant", [None, {}]))
    assert data(after) == [U("u"), A("")]
    assert after.actions[0] == Action("dropped", (0,), "the server leaves out its blocks: search_result")
