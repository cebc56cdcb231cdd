"""What llama.cpp's server finds out about templates."""

import pytest
from tplaudit.probes.policies.servers.llama_cpp_template import (
    OLDER,
    Capabilities,
    Thinking,
    capabilities,
    family_of,
    thinking_of,
)
from tplaudit.probes.templates.template import ChatTemplate

LOOP = "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
CALLS = "{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}"
PLAIN = LOOP + CALLS + "{% endfor %}"
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + PLAIN
TYPED = "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}"
TYPED_NO_SYSTEM = TYPED.replace("in messages", "in messages if m.role != 'system'")
EITHER = (
    "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}"
)


def template(text: str) -> ChatTemplate:
    return ChatTemplate({"default": text}, source="test")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (PLAIN, Capabilities(True, True, False, True)),
        (NO_SYSTEM, Capabilities(False, True, False, True)),
        (TYPED, Capabilities(True, False, True, False)),
        (TYPED_NO_SYSTEM, Capabilities(False, False, True, False)),
        (EITHER, Capabilities(True, True, True, False)),
        ("{{ messages | length }}", Capabilities(False, False, False, False)),
        ("{{ raise_exception('x') }}", Capabilities(False, False, False, False)),
    ],
)
def test_capabilities(source: str, expected: Capabilities) -> None:
    assert capabilities(template(source)) == expected


def test_an_older_build_finds_no_lists_where_texts_are_taken() -> None:
    assert not capabilities(template(EITHER), OLDER).typed_content


REASONED = (
    "{% for m in messages %}{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n"
    "{% endif %}{{ m.content }}{% endfor %}"
)
SWITCHED = "{{ messages[0].content }}<a>{% if not enable_thinking %}<think></think>{% endif %}"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (PLAIN, Thinking()),
        (REASONED, Thinking(True, "<think>\n", "\n</think>\n")),
        (SWITCHED, Thinking(True, "", "<think></think>")),
        ("<tool_call><function=<parameter=", Thinking()),
    ],
)
def test_tags_before_and_behind_reasoning(source: str, expected: Thinking) -> None:
    assert thinking_of(template(source)) == expected


def test_families_by_their_words() -> None:
    family = family_of("<tool_call><function=<parameter=<think>")
    assert family is not None and family.start == "<think>\n"
    assert family_of(PLAIN) is None
