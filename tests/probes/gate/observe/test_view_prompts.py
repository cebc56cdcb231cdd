"""The prompts of all conversations with one template."""

from datetime import datetime

from tplaudit.probes.gate.observe.shapes import SHAPES
from tplaudit.probes.gate.observe.view_prompts import view_prompts
from tplaudit.probes.gate.subject import Subject
from tplaudit.probes.templates.template import ChatTemplate

NOW = datetime(2026, 1, 1)
CHAT = Subject("plain", "chat")
TEXT = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<reply>{{ 'loud' if loud }}{% endif %}"
)


def test_each_prompt_belongs_to_its_request() -> None:
    template = ChatTemplate({"default": TEXT}, source="test")
    found = view_prompts(template, (("loud", True),), {}, NOW)
    for shape in SHAPES:
        turns = found[shape.subject()]
        assert [turn.request.messages for turn in turns if turn.request] == [
            request.messages for request in shape.requests
        ]
        for turn in turns:
            assert turn.request is not None
            raises = any(message.role == "tool" for message in turn.request.messages)
            assert turn.rendered != raises
            if not raises and not turn.request.partial:
                assert turn.text == template.render_request(turn.request)
                assert turn.body is not None and turn.body != turn.digest
        assert len(found[shape.subject("raw")]) == 1
        assert found[shape.subject("raw")][0].body is None
    assert str(found[CHAT.usual][-1].text).endswith("<reply>")
    assert str(found[Subject("plain", "chat", "loud=true")][-1].text).endswith("<reply>loud")


def test_a_conversation_that_raises_does_not_shift_the_others() -> None:
    template = ChatTemplate({"default": TEXT}, source="test")
    found = view_prompts(template, (), {}, NOW)
    rendered = [turn.appended for turn in found[Subject("tools", "offered")]]
    assert rendered == [None, True]
    assert [turn.error for turn in found[Subject("tools", "round")]][-1] == "TemplateError: no tools"
