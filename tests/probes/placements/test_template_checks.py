"""The checks beside system turns: clock, string arguments, content lists, and how a directory is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tplaudit.probes.errors import InputError
from tplaudit.probes.findings import Finding
from tplaudit.probes.placements.mid_system import Prompts
from tplaudit.probes.placements.template_checks import check_template
from tplaudit.probes.templates.source import TemplateSource
from tplaudit.probes.templates.switches import switches
from tplaudit.probes.templates.template import ChatTemplate
from tplaudit.probes.tokenization import files as tokenizer_files
from tplaudit.probes.tokenization.loading_check import check_loading

LOOP = (
    "{% for m in messages %}{{ m.role }}"
    ": {{ m.content if m.content is string else m.content[0].text }}\n{% endfor %}"
)


def found(text: str, kwargs: dict[str, Any] | None = None) -> dict[str, Finding]:
    prompts = Prompts(ChatTemplate({"default": text}, source="t"), kwargs or {})
    return {each.rule: each for each in check_template(prompts)}


def test_a_good_template_has_no_findings() -> None:
    assert found(LOOP) == {}


def test_a_clock_is_found_with_its_line() -> None:
    text = "Head.\n{{ 'Today: ' + strftime_now('%d %B %Y') }}\n" + LOOP
    each = found(text)["template-clock"]
    assert each.line == 2
    offset = len("Head.\nToday: ")
    assert each.message == f"the date or time of the render is at character {offset} of the prompt"
    pinned = (
        "{% if not date_string is defined %}{% set date_string = strftime_now('%d') %}{% endif %}"
        "{{ date_string }}"
    ) + LOOP
    assert "template-clock" in found(pinned)
    assert "template-clock" not in found(pinned, {"date_string": "1 May"})
    assert "template-clock" not in found("{# strftime_now #}" + LOOP)


def test_a_clock_behind_tools_is_found() -> None:
    text = LOOP + "{% if tools %}{{ strftime_now('%H:%M') }}{% endif %}"
    assert found(text)["template-clock"].message.endswith("when tools are given")


def test_string_arguments() -> None:
    calls = (
        "{% for m in messages %}{% for c in m.tool_calls or [] %}"
        "{% for k, v in c.function.arguments.items() %}{{ k }}{% endfor %}{% endfor %}{% endfor %}"
    )
    each = found(LOOP + calls)["string-arguments-raise"]
    assert "UndefinedError" in each.message
    assert each.line == 2
    assert "string-arguments-raise" not in found(
        LOOP + calls.replace(".items()", " | tojson").replace("k, v", "k")
    )
    never = "{% if messages[-1].role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    assert "string-arguments-raise" not in found(LOOP + never)


def test_content_lists() -> None:
    each = found("{% for m in messages %}\n{{ m.content }}\n{% endfor %}")["parts-list-repr"]
    assert each.line == 2
    assert "system, user, assistant, tool" in each.message
    only = (
        "{% for m in messages %}"
        "{{ m.content if m.role == 'tool' or m.content is string else m.content[0].text }}{% endfor %}"
    )
    assert found(only)["parts-list-repr"].message.endswith("in turns of role tool")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            (
                "{% for m in messages %}\n{% if m.role == 'user' %}{{ m.content }}"
                "{% elif m.role == 'assistant' %}{{ m.content }}{% endif %}{% endfor %}"
            ),
            2,
        ),
        (
            (
                "{% for m in messages %}\n{% if m.role == 'user' %}{{ m.content }}"
                "\n{% elif m.role == 'system' and loop.first %}{{ m.content }}{% endif %}{% endfor %}"
            ),
            3,
        ),
        (
            (
                "{% for m in messages %}\n{% if m['role'] in ['system'] %}\n{# nothing #}{% else %}"
                "{{ m.content }}{% endif %}{% endfor %}"
            ),
            2,
        ),
        (
            (
                "{% for m in messages %}{% if m.role == 'system' %}{{ m.name }}{% else %}{{ m.content }}"
                "{% endif %}{% endfor %}"
            ),
            None,
        ),
        ("{% for m in messages\n if m.role != 'system' %}{{ m.content }}{% endfor %}", 2),
        (
            (
                "{% for m in messages %}{% set role = m.role %}\n{% if role == 'user' or 'tool' == role %}"
                "{{ m.content }}{% endif %}{% endfor %}"
            ),
            2,
        ),
        (
            (
                "{% set known = ['user'] %}{% for m in messages %}\n{% if not (m.role not in known) %}"
                "{{ m.content }}{% endif %}{% endfor %}"
            ),
            2,
        ),
        (
            (
                "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% else %}"
                "\n{% if m.role == 'tool' %}{{ m.content }}{% endif %}{% endif %}{% endfor %}"
            ),
            2,
        ),
        ("{% for m in messages %}{% if m.role == 'user' %}{% set n = 1 %}{% endif %}{% endfor %}", None),
        ("{% for m in messages[1:] %}{{ m.content }}{% endfor %}", None),
        (
            (
                "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}"
                "\n{% if m.role == 'tool' %}{{ m.content }}{% endif %}{% endfor %}"
            ),
            None,
        ),
        ("{% for m in messages %}{% if loop.first %}{{ m.content }}{% endif %}{% endfor %}", None),
        ("{% for a, b in messages %}{% if a.role == 'user' %}{{ a }}{% endif %}{% endfor %}", None),
    ],
)
@pytest.mark.parametrize("compiled", [False, True])
def test_the_condition_that_keeps_a_role_out(text: str, line: int | None, compiled: bool) -> None:
    source = TemplateSource(text)
    if compiled:
        source.check()  # which folds constants in the tree
    assert source.skipped_branch_line("system") == line


def test_switches_are_told_by_their_names() -> None:
    text = (
        "{{ enable_thinking }}{{ reasoning_effort }}{{ low_effort }}{{ custom }}{{ tools }}{{ skip_it }}"
        "{% if thinking_mode in ['on', 'off'] %}{% endif %}{% set think_here = 1 %}{{ think_here }}"
    )
    assert switches(TemplateSource(text)) == {
        "enable_thinking": (True, False),
        "low_effort": (True, False),
        "reasoning_effort": ("low", "medium", "high"),
        "skip_it": (True, False),
        "thinking_mode": (True, False, "on", "off"),
    }
    assert switches(TemplateSource("{{ add_generation_prompt }}{{ raise_exception('x') }}")) == {}


class Fixed:
    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    def encode(self, text: str) -> list[int]:
        return self.ids


def model(tmp_path: Path, config: object | None) -> str:
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    if config is not None:
        (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(tmp_path)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (None, "config.json is missing"),
        ({}, "config.json names no model_type"),
        ({"model_type": "no-such-model"}, "has no model of that name"),
        ([], "config.json cannot be read"),
    ],
)
def test_a_directory_that_loads_in_two_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: object, reason: str
) -> None:
    monkeypatch.setattr(
        tokenizer_files, "load_tokenizer", lambda path: Fixed([1, 2] if path.is_dir() else [1, 2, 3])
    )
    (each,) = check_loading(model(tmp_path, config))
    assert (each.rule, each.confidence) == ("token-ids-depend-on-loading", "confirmed")
    assert reason in each.message
    assert "gives 2 token ids" in each.message and "gives 3" in each.message
    monkeypatch.setattr(tokenizer_files, "load_tokenizer", lambda path: Fixed([1]))
    assert list(check_loading(str(tmp_path))) == []


def test_ways_that_cannot_be_compared_are_only_likely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> Fixed:
        raise InputError("cannot be loaded")

    monkeypatch.setattr(tokenizer_files, "load_tokenizer", fail)
    (each,) = check_loading(model(tmp_path, None))
    assert each.confidence == "likely"


def test_known_models_are_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_files, "load_tokenizer", lambda path: pytest.fail("loaded"))
    assert list(check_loading(model(tmp_path, {"model_type": "qwen3"}))) == []
    assert list(check_loading(str(tmp_path / "none.jinja"))) == list(check_loading("-")) == []
