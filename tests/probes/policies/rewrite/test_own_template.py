"""A model's template with something of the server's own before and behind it."""

from tplaudit.probes.conversation import Message, Request
from tplaudit.probes.policies.rewrite.own_template import extended
from tplaudit.probes.templates.template import ChatTemplate

REQUEST = Request((Message({"role": "user", "content": "u"}, 0),))


def test_the_template_between_two_texts() -> None:
    template = ChatTemplate({"default": "{{ messages[0].content }}\n"}, source="test")
    source = extended(template, REQUEST, "<", ">")
    assert template.render_request(REQUEST.replace(template=source)) == "<u>"
    assert template.render_request(REQUEST) == "u"


def test_there_may_be_no_template() -> None:
    assert extended(ChatTemplate({"other": "x", "another": "y"}, source="test"), REQUEST) is None
