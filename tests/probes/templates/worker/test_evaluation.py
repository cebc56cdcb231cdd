from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tplaudit.probes.attribution.ownership import owner_at
from tplaudit.probes.conversation import Message, Request
from tplaudit.probes.errors import InputError, RenderError
from tplaudit.probes.models.model import load_model
from tplaudit.probes.models.template_files import check_compiles
from tplaudit.probes.templates.source import TemplateSource
from tplaudit.probes.templates.template import ChatTemplate

MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]
PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"

SUM = "{{ 1" + "+1" * 20_000 + " }}"


def template(text: str) -> ChatTemplate:
    return ChatTemplate({"default": text}, source="test")


def test_a_chunk_behind_the_cut_is_clamped() -> None:
    one = template("{% for m in messages %}{{ '<' ~ m.role ~ '>' ~ m.content ~ '</end>' }}{% endfor %}")
    request = Request((Message({"role": "user", "content": "Hello"}, 0),), partial=True)
    prompt = one.render_request(request)
    assert prompt == "<user>Hello"
    assert owner_at(one, request, request, prompt, len(prompt) - 1, lambda: prompt).field == "content"


def test_another_prompt_at_each_render_is_a_render_error() -> None:
    one = template(PLAIN)
    request = Request((Message(MESSAGES[0], 0),))
    with pytest.raises(RenderError, match="same prompt twice"):
        owner_at(one, request, request, "x" * 99, 98, lambda: "")


@pytest.mark.parametrize("text", [SUM, "{{ a" + ".b" * 20_000 + " }}"])
def test_a_tree_too_deep_to_walk_is_a_render_error(text: str) -> None:
    source = TemplateSource(text)
    for name in ("names", "generation_prompt_ends", "undeclared"):
        with pytest.raises(RenderError, match="nested too deeply"):
            getattr(source, name)
    with pytest.raises(RenderError, match="nested too deeply"):
        source.check()


def test_a_syntax_error_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.jinja"
    path.write_text("a\n{% if %}")
    with pytest.raises(InputError, match="not a valid chat template") as caught:
        load_model(None, template=str(path))
    assert caught.value.where == f"{path}:2"


def test_an_empty_template_is_not_valid() -> None:
    with pytest.raises(InputError, match="renders nothing"):
        check_compiles(template(""))
