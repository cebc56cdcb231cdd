"""LM Studio: what issue threads tell of it."""

import pytest
from chat_messages import S, U, part, prepared
from tplaudit import fixtures
from tplaudit.probes.errors import RenderError
from tplaudit.probes.models.template_files import load_template
from tplaudit.probes.policies.base import render_prepared
from tplaudit.probes.policies.registry import Prepared


def roles(after: Prepared) -> list[str]:
    return [message.role for message in after.request.messages]


def test_two_developer_messages_of_a_responses_request_raise_on_a_strict_template() -> None:
    items = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "message", "role": "developer", "content": "b"},
        {"type": "message", "role": "user", "content": "u"},
    ]
    one = prepared("lm-studio", items[1:], dialect="openai-responses")
    two = prepared("lm-studio", items, dialect="openai-responses")
    assert roles(two) == ["system", "system", "user"]
    strict = load_template(fixtures.template("strict"))
    assert "b" in render_prepared(one, strict)[0]
    with pytest.raises(RenderError, match="first message"):
        render_prepared(two, strict)


@pytest.mark.parametrize("route", ["", ":route=none", ":route=messages"])
def test_chat_messages_are_passed_on(route: str) -> None:
    messages = [{"role": "developer", "content": "d"}, U([part("u")]), S("n")]
    after = prepared(f"lm-studio{route}", messages)
    assert [message.data for message in after.request.messages] == messages
    assert [(action.kind, action.messages) for action in after.actions] == [("kept", (0,)), ("kept", (2,))]


def test_a_later_system_turn_of_an_anthropic_request_stays() -> None:
    messages = [U("u"), S("n")]
    after = prepared("lm-studio", messages, dialect="anthropic-messages", system="s")
    assert roles(after) == ["system", "user", "system"]
