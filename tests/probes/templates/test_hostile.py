"""Inputs that ended a run: each is one turn's or one template's error now."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tplaudit.fixtures import TEMPLATES
from tplaudit.probes.attribution.ownership import owner_at
from tplaudit.probes.conversation import Message, Request
from tplaudit.probes.errors import RenderError, RenderLimit
from tplaudit.probes.models.template_files import load_template
from tplaudit.probes.templates.rendering import Limits, RenderTask
from tplaudit.probes.templates.template import ChatTemplate
from tplaudit.probes.tokenization.files import load_bundled_tokenizer
from tplaudit.probes.tokenization.tokens import IncrementalEncoder

MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]
PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
OURS = [load_template(path) for path in sorted(TEMPLATES.glob("*.jinja"))]


def template(text: str) -> ChatTemplate:
    return ChatTemplate({"default": text}, source="test")


@pytest.mark.parametrize("tools", [5, "read", {"name": "read"}, True])
def test_tools_of_another_type_are_a_render_error(tools: Any) -> None:
    with pytest.raises(RenderError, match="'tools' must be a list") as caught:
        template(PLAIN).render(MESSAGES, kwargs={"tools": tools})
    assert caught.value.kind == "TypeError"


@pytest.mark.parametrize("value", [[], ["content"], {"a": 1}, 1.5])
def test_a_continuation_of_another_type_is_a_render_error(value: Any) -> None:
    kwargs = {"continue_final_message": value, "add_generation_prompt": False}
    with pytest.raises(RenderError, match="'continue_final_message' must be"):
        template(PLAIN).render(MESSAGES, kwargs=kwargs)


@pytest.mark.parametrize("value", [5, "x", [1], {}, None])
@pytest.mark.parametrize("name", ["documents", "add_generation_prompt"])
def test_other_overrides_reach_the_template(name: str, value: Any) -> None:
    text = "{{ documents|tojson }}{{ 'yes' if add_generation_prompt }}" + PLAIN
    assert "<user>Hello</>" in template(text).render(MESSAGES, kwargs={name: value})
    if value == 5:
        with pytest.raises(RenderError, match="not iterable"):
            template("{% for d in documents %}{% endfor %}").render(MESSAGES, kwargs={"documents": value})


@given(
    st.sampled_from(OURS),
    st.lists(st.sampled_from(["", "a", "Hello  ", "two\n\nlines \n"]), min_size=1, max_size=3),
)
def test_each_character_of_a_partial_prompt_has_an_owner(one: ChatTemplate, texts: list[str]) -> None:
    roles = ["assistant" if number % 2 else "user" for number in range(len(texts))]
    messages = tuple(
        Message({"role": role, "content": text}, index)
        for index, (role, text) in enumerate(zip(roles, texts, strict=True))
    )
    request = Request(messages, partial=True)
    try:
        prompt = one.render_request(request)
    except RenderError:
        return
    for offset in {0, len(prompt) // 2, max(len(prompt) - 1, 0), len(prompt)}:
        owner = owner_at(one, request, request, prompt, offset, lambda: prompt)
        assert owner.index is None or owner.index < len(messages)


def test_a_template_whose_renders_are_all_slow_is_stopped() -> None:
    """What counts is the CPU time that the worker took, so that a busy machine changes nothing."""
    text = "{% for i in range(9000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}" + PLAIN
    one = ChatTemplate({"default": text}, source="slow", limits=Limits(seconds=3.0))
    outcomes = one.render_many([asked(f"message {number}") for number in range(300)])
    limits = [each for each in outcomes if isinstance(each, RenderLimit)]
    assert 0 < len(limits) < 300 and outcomes[-len(limits) :] == limits
    assert str(limits[0]) == "not evaluated, too slow: its renders took more than 4.5 s of CPU time together"
    with pytest.raises(RenderLimit, match="too slow"):
        one.render(MESSAGES)


def asked(text: str) -> RenderTask:
    return RenderTask(Request((Message({"role": "user", "content": text}, 0),)))


def test_a_template_that_inflates_conversations_is_stopped() -> None:
    one = template("{{ 'a b ' * 1200000 }}")
    for number in range(2):
        assert len(one.render_many([asked(f"{number}")])[0].text) == 4_800_000  # type: ignore[union-attr]
    with pytest.raises(RenderLimit, match="many times as long"):
        one.render(MESSAGES)


def test_a_long_conversation_is_not_inflated() -> None:
    one = template(PLAIN)
    long: list[dict[str, Any]] = [{"role": "user", "content": "word " * 500_000}]
    assert {len(one.render(long)) for _ in range(5)} == {2_500_009}


def test_text_that_no_tokenizer_encodes_is_a_render_error() -> None:
    with pytest.raises(RenderError, match="half a surrogate pair") as caught:
        IncrementalEncoder(load_bundled_tokenizer()).encode("a\ud800b")
    assert caught.value.kind == "EncodingError"
