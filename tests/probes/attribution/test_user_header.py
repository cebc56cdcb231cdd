"""What opens a user turn."""

from __future__ import annotations

import pytest
from tplaudit.fixtures import template
from tplaudit.probes.attribution.user_header import user_header
from tplaudit.probes.templates.template import ChatTemplate

TURN = "<{{ m.role }}>{{ m.content }}</{{ m.role }}>"


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("{% for m in messages %}" + TURN + "{% endfor %}", "<user>"),
        # A system text that the template always writes, and a mark that closes replies.
        ("<system>Help.</system>{% for m in messages %}" + TURN + "{% endfor %}", "<user>"),
        (
            "{% for m in messages %}{{ '[INST] ' + m.content + ' [/INST]' if m.role == 'user' else m.content"
            " + '</s>' }}{% endfor %}",
            "[INST]",
        ),
        # The last reply is written differently, so that what closes it cannot be told.
        ("{% for m in messages %}" + TURN + "{{ '!' if loop.last }}{% endfor %}", ""),
        ("{% if messages | length > 1 %}{{ raise_exception('one') }}{% endif %}", ""),
    ],
)
def test_the_text_between_a_reply_and_the_next_question(text, header):
    assert user_header(ChatTemplate({"default": text}, source="test"), {}) == header


@pytest.mark.parametrize("name", ["strict", "in-place", "dropping", "moving"])
def test_bundled_templates(name):
    text = template(name).read_text(encoding="utf-8")
    assert user_header(ChatTemplate({"default": text}, source=name), {}) == "<|im_start|>user"
