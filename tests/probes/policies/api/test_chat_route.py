"""What oMLX's extraction makes of chat messages."""

from pathlib import Path
from typing import Any

import pytest
from chat_messages import A, S, T, U, part
from tplaudit.probes.conversation import Message, Piece
from tplaudit.probes.policies.api.chat_route import (
    ChatRules,
    extract,
    parsed_arguments,
    supports_tools,
    template_tools,
)
from tplaudit.probes.policies.base import Action
from tplaudit.probes.templates.template import ChatTemplate

IMAGE = {"type": "image_url", "image_url": {"url": "x", "detail": "low"}}


def extracted(data: dict[str, Any], **rules: Any) -> list[dict[str, Any]]:
    rewrite = extract((Message(data, 0),), ChatRules(**rules))
    return [dict(message.data) for message in rewrite.messages]


def template(source: str) -> ChatTemplate:
    return ChatTemplate({"default": source}, source="t")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("u", "u"),
        (None, ""),
        ([part("a"), IMAGE, part("b"), "c"], "a\nb\nc"),
        ([], ""),
        ([part(None)], ""),
        (7, "7"),
    ],
)
def test_contents_become_texts(content: Any, words: str) -> None:
    assert extracted(U(content)) == [U(words)]


def test_lost_parts_are_named() -> None:
    rewrite = extract((Message(U([IMAGE, part("a"), IMAGE]), 3),), ChatRules())
    assert rewrite.actions == (Action("dropped", (3,), "the server leaves out its parts: image_url"),)


def test_developers_names_and_other_keys() -> None:
    assert extracted({"role": "developer", "content": "d", "name": "n", "weight": 0}) == [S("d", name="n")]


def test_a_message_that_is_text_already_is_the_very_same_object() -> None:
    message = Message({"content": "u", "role": "user"}, 0)
    rewrite = extract((message,), ChatRules())
    assert rewrite.messages[0] is message
    assert rewrite.actions == ()


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ('{"a": [1]}', {"a": [1]}),
        (" [1] ", [1]),
        ("{broken", "{broken"),
        (" text ", "text"),
        ("", ""),
        ({"a": 1}, {"a": 1}),
        (None, None),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_arguments(given: Any, arguments: Any) -> None:
    assert parsed_arguments(given) == arguments


def test_a_call_keeps_its_id_name_and_arguments() -> None:
    call = {"id": "c1", "type": "function", "index": 0, "function": {"name": "f", "arguments": '{"a": 1}'}}
    assert extracted(A(None, tool_calls=[call], refusal=None)) == [
        A(
            "",
            tool_calls=[{"id": "c1", "function": {"name": "f", "arguments": {"a": 1}}}],
            _preserve_role_boundary=True,
        )
    ]


def test_calls_and_results_for_a_template_without_a_tool_role() -> None:
    calls = [{"id": "c1", "function": {"name": "f", "arguments": '{"a": 1}'}}, {"id": "c2"}]
    turns = (
        Message(A("on it", tool_calls=calls), 0),
        Message(T([part("r"), part("s")]), 1),
        Message({"role": "tool", "content": None}, 2),
    )
    rewrite = extract(turns, ChatRules(tool_role=False))
    assert [message.data for message in rewrite.messages] == [
        A('on it\n[Calling tool: f({"a": 1})]\n[Calling tool: unknown({})]', _preserve_role_boundary=True),
        U("[Tool Result (c1)]: r\ns", _preserve_role_boundary=True),
        U("[Tool Result ()]: ", _preserve_role_boundary=True),
    ]
    why = "tool results become user turns, because the template has no tool role"
    assert rewrite.actions == (Action("converted", (1, 2), why),)


def test_a_result_for_a_template_with_a_tool_role() -> None:
    assert extracted({"role": "tool", "tool_call_id": "c1", "name": "f", "content": "r"}) == [T("r")]


@pytest.mark.parametrize(
    ("reasoning", "turn"),
    [
        ("native", {"content": "x", "reasoning_content": "t"}),
        ("inline", {"content": "<think>\nt\n</think>\n\nx"}),
        ("field", {"content": "x", "reasoning_content": "t"}),
    ],
)
def test_reasoning(reasoning: str, turn: dict[str, Any]) -> None:
    given = A("x", reasoning_content="t")
    assert extracted(given, reasoning=reasoning) == [{"role": "assistant", **turn}]
    call = {"id": "c1", "function": {"name": "f", "arguments": {}}}
    (calling,) = extracted({**given, "tool_calls": [call]}, reasoning=reasoning)
    assert {key: calling[key] for key in turn} == turn
    assert ("reasoning_content" in calling) == ("reasoning_content" in turn)


def test_inline_reasoning_becomes_a_field_where_that_is_native() -> None:
    given = A("<think>\nt\n</think>\n\nx")
    assert extracted(given, reasoning="native") == [A("x", reasoning_content="t")]
    assert extracted(given, reasoning="inline") == extracted(given, reasoning="field") == [given]
    assert extracted({**given, "role": "user"}, reasoning="native") == [{**given, "role": "user"}]


@pytest.mark.parametrize(
    ("data", "void"),
    [
        ({"content": ""}, True),
        ({"content": None}, True),
        ({"content": [IMAGE]}, True),
        ({"content": "a"}, False),
        ({"content": "", "tool_calls": [{"id": "c"}]}, False),
        ({"content": "", "reasoning_content": "t"}, False),
    ],
)
def test_void_assistant_turns_are_removed(data: dict[str, Any], void: bool) -> None:
    rewrite = extract((Message({"role": "assistant", **data}, 2),), ChatRules())
    assert (rewrite.messages == ()) == void
    if void:
        assert rewrite.actions == (Action("dropped", (2,), "an assistant turn without anything in it"),)
    assert extract((Message({"role": "assistant", **data}, 2),), ChatRules(drop_void=False)).messages


def test_the_multimodal_extraction_keeps_images_in_a_list() -> None:
    sound = {"type": "input_audio", "input_audio": {"data": "x"}}
    given = U([part("a"), {"type": "refusal"}, IMAGE, sound, {"type": "image_url"}])
    message = Message(given, 4, (Piece(0, 1, 0), Piece(0, 4, 1), Piece(0, 2, 2), Piece(0, 4, 3)))
    rewrite = extract((message,), ChatRules(images=True))
    (after,) = rewrite.messages
    assert after.data == U([part("a"), {"type": "image_url", "image_url": {"url": "x"}}, sound])
    assert after.pieces == (Piece(0, 1, 0), Piece(0, 2, 1), Piece(0, 4, 2))
    assert rewrite.actions == (
        Action("dropped", (4,), "the server leaves out its parts: refusal, image_url"),
    )


def test_the_multimodal_extraction_makes_a_text_of_texts() -> None:
    given = U([part("a"), part("b")])
    assert extracted(given, images=True) == [U("a\nb")]


@pytest.mark.parametrize(
    ("source", "known"),
    [
        ("{% if m.role == 'tool' %}{{ m.tool_calls }}{% endif %}", True),
        ('{% if m.role == "tool" %}{{ m.tool_calls }}{% endif %}', True),
        ("{% if m.role == 'tool' %}{% endif %}", False),
        ("{{ m.tool_calls }}", False),
        ("{# 'tool' and tool_calls #}", False),
        ("[TOOL_CALLS]", True),
        ("<tool_call>{{ tool_call.name }}", True),
        ("<tool_call>", False),
        ("", False),
    ],
)
def test_which_templates_know_tools(source: str, known: bool) -> None:
    assert supports_tools(template(source)) is known


def test_the_words_for_tool_calls_are_those_of_the_installed_mlx_lm() -> None:
    utils = pytest.importorskip("mlx_lm.tokenizer_utils")

    class Tokenizer:
        def __init__(self, chat_template: str) -> None:
            self.chat_template = chat_template

        def get_vocab(self) -> dict[str, int]:
            return {}

    words = [
        "<minimax:tool_call>",
        "<|tool_call> <tool_call|>",
        "<|tool_call>",
        "<start_function_call>",
        "<longcat_tool_call>",
        "<arg_key>",
        "<|tool_list_start|>",
        "<|tool_call_start|>",
        "<tool_call>\\n<function=",
        "<tool_call>\n<function=",
        "<|tool_calls_section_begin|>",
        '<function name=" <param name="',
        '<function name="',
        "[TOOL_CALLS]",
        "<atem:function_calls>",
        "<tool_call> tool_call.name",
        "<tool_call>",
        "",
    ]
    for each in words:
        assert supports_tools(template(each)) == (utils._infer_tool_parser(Tokenizer(each)) is not None), each


def test_named_templates_without_a_default_know_no_tools() -> None:
    assert not supports_tools(ChatTemplate({"tool_use": "[TOOL_CALLS]"}, source="t"))


def test_the_bundled_templates_know_tools() -> None:
    for path in (Path(__file__).parents[4] / "fixtures" / "templates").glob("*.jinja"):
        assert supports_tools(template(path.read_text(encoding="utf-8"))), path.name


def test_tools_are_reduced_to_three_keys_in_one_order() -> None:
    tools = (
        {"function": {"strict": True, "parameters": {"type": "object"}, "name": "f"}, "type": "function"},
        {"type": "function", "function": {"name": "g", "description": "G", "parameters": None}},
        {"type": "web_search"},
    )
    converted = template_tools(tools)
    assert converted == (
        {"type": "function", "function": {"name": "f", "description": "", "parameters": {"type": "object"}}},
        {
            "type": "function",
            "function": {"name": "g", "description": "G", "parameters": {"type": "object", "properties": {}}},
        },
    )
    assert converted is not None
    assert list(converted[0]["function"]) == ["name", "description", "parameters"]
    assert template_tools(()) is None
    assert template_tools(None) is None
