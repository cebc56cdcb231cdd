from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tplaudit.probes.attribution.perturbation import alter_message, alter_text, alter_tools, texts_of
from tplaudit.probes.conversation import Message

TOOLS = tuple(
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Does {name} zqtool things",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string", "description": "where zqtool"}},
                "required": ["path"],
            },
        },
    }
    for name in ("read", "edit")
)


@given(st.text())
def test_alteration_keeps_the_length_and_what_steers(text: str) -> None:
    altered = alter_text(text)
    assert len(altered) == len(text)
    assert [char.isspace() for char in altered] == [char.isspace() for char in text]
    for old, new in zip(text, altered, strict=True):
        if old.isascii() and not old.isalnum():
            assert new == old


def test_alteration_leaves_markup_and_steering_keys_alone() -> None:
    message = Message(
        {
            "role": "assistant",
            "content": "<think>\nabc 9\n</think>[INST]",
            "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": '{"key": "val\\n", "n": 1}'}}],
        },
        0,
    )
    altered = alter_message(message, texts_of(message, 0)).data
    assert altered["role"] == "assistant"
    assert altered["content"] == "<think>\nbcd 0\n</think>[INST]"
    call = altered["tool_calls"][0]
    assert call == {"id": "c1", "function": {"name": "f", "arguments": '{"key": "wbm\\n", "n": 1}'}}
    assert message.data["content"] == "<think>\nabc 9\n</think>[INST]"


def test_tools_without_descriptions_are_told_by_their_names() -> None:
    tools = ({"type": "function", "function": {"name": "read"}},)
    assert alter_tools(tools) == ({"type": "function", "function": {"name": "sfbe"}},)
    assert alter_tools(TOOLS)[0]["function"]["name"] == "read"
