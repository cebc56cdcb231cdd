"""Reasoning of earlier turns: by which rule it travels, and how it is taken out of a text."""

from typing import Any

import pytest
from tplaudit.probes.conversation import Message, Piece
from tplaudit.probes.policies.rewrite.reasoning import (
    detects_preserve_thinking,
    is_native,
    normal_effort,
    other_effort,
    split_thinking,
    thinking_budget,
    thinking_type,
    with_reasoning,
)
from tplaudit.probes.policies.rewrite.texts import Text
from tplaudit.probes.templates.template import ChatTemplate


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("{{ preserve_thinking }}", True),
        ("{# preserve_thinking #}", True),
        ("{{ clear_thinking }}", False),
        ("{{ drop_thinking }}", False),
    ],
)
def test_the_word_decides(source: str, found: bool) -> None:
    assert detects_preserve_thinking(ChatTemplate({"default": source}, source="t")) is found


@pytest.mark.parametrize(
    ("model_type", "versions"),
    [
        ("minimax_m3", "0.5.3 sept latest"),
        ("minimax_m3_vl", "0.5.3 sept latest"),
        ("inkling", "0.5.3 sept latest"),
        ("inkling_mm_model", "0.5.3 sept latest"),
        ("muse_glimmer", "sept latest"),
        ("k2_horizon", "latest"),
        ("deepseek_v4", "latest"),
        ("deepseek_v4_flash", "latest"),
        ("qwen3", ""),
        (None, ""),
    ],
)
def test_model_types(model_type: str | None, versions: str) -> None:
    native = [
        version
        for version in ("0.5.3", "sept", "latest")
        if is_native(version=version, model_type=model_type, model_name="m", detected=False)
    ]
    assert native == versions.split()


@pytest.mark.parametrize(
    ("name", "native"), [("MiniMax-M3-4bit", True), ("MiniMax-M2.7", False), ("gemma3", False)]
)
def test_model_names(name: str, native: bool) -> None:
    assert is_native(version="latest", model_type=None, model_name=name, detected=False) is native


def test_detection_is_enough() -> None:
    assert is_native(version="0.5.3", model_type=None, model_name="", detected=True)


@pytest.mark.parametrize(
    ("text", "reasoning", "rest"),
    [
        ("<think>\nt\n</think>\n\nx", "t", "x"),
        ("<think>t</think>", "t", ""),
        ("a <think>t</think> b <think>u</think> c", "t\nu", "a  b  c"),
        ("<mm:think>t</mm:think>x", "t", "x"),
        ("t</think>\n x", "t", "x"),
        ("<think>never closed", "", "<think>never closed"),
        ("<think></think> x ", "", "<think></think> x "),
        ("</think> x ", "", "</think> x "),
        (" x ", "", " x "),
        ("", "", ""),
    ],
)
def test_splitting(text: str, reasoning: str, rest: str) -> None:
    found, left = split_thinking(Text(text, ((0, 0),)))
    assert (found, left.text) == (reasoning, rest)
    assert left.owners == ((0, 0),)


def test_splitting_keeps_owners() -> None:
    text = Text("<think>t</think> ab cd", ((0, 5), (19, 6)))
    _, left = split_thinking(text)
    assert (left.text, left.owners) == ("ab cd", ((0, 5), (2, 6)))


def test_a_block_is_put_before_a_built_text() -> None:
    data = {"role": "assistant", "content": "ab", "reasoning_content": "t"}
    text, field = with_reasoning(Message(data, 1, (Piece(0, 1), Piece(1, 2))), native=False)
    assert field is None
    assert text is not None
    assert (text.text, text.owners) == ("<think>\nt\n</think>\n\nab", ((0, 1), (21, 2)))


@pytest.mark.parametrize(
    ("value", "normal", "other"),
    [
        ("High ", "high", "xhigh"),
        ("none", "none", "low"),
        ("low", "low", None),
        ("max", "max", "xhigh"),
        (" 0.5", "0.5", 0.5),
        ("inf", "inf", None),
        ("Weird ", "Weird ", None),
        (3, 3, None),
        (None, None, None),
    ],
)
def test_efforts(value: Any, normal: Any, other: Any) -> None:
    assert normal_effort(value) == normal
    assert other_effort(normal) == other


@pytest.mark.parametrize(
    ("thinking", "enabled"),
    [
        ({"type": "enabled", "budget_tokens": 9}, True),
        ({"type": "adaptive"}, True),
        ({"type": "disabled"}, False),
        ({"type": "other"}, None),
        ("enabled", None),
        (None, None),
    ],
)
def test_the_type_of_thinking(thinking: Any, enabled: bool | None) -> None:
    assert thinking_type({"thinking": thinking}) is enabled


@pytest.mark.parametrize(
    ("fields", "budget"),
    [
        ({"thinking_budget": 5}, 5),
        ({"thinking": {"budget_tokens": 6}}, 6),
        ({"thinking_budget": 0}, None),
        ({"thinking_budget": True}, None),
        ({"thinking_budget": "5"}, None),
        ({}, None),
    ],
)
def test_budgets(fields: dict[str, Any], budget: int | None) -> None:
    assert thinking_budget(fields) == budget
