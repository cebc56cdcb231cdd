from __future__ import annotations

from typing import Any

import pytest
from tplaudit.probes.conversation import Message
from tplaudit.probes.transcripts.grouping.message_keys import (
    MessageKeys,
    call_texts,
    nearly_equal,
    system_text,
)


def _key(**data: Any) -> Any:
    return MessageKeys().of_value(data)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"role": "user", "content": "Go."}, {"role": "user", "content": [{"type": "text", "text": "Go."}]}),
        ({"role": "assistant", "content": ""}, {"role": "assistant", "content": None, "tool_calls": []}),
        (
            {"role": "tool", "content": "x", "tool_call_id": "a"},
            {"role": "tool", "content": "x", "tool_call_id": "b"},
        ),
        (
            {"type": "reasoning", "summary": [], "encrypted_content": "1", "id": "a"},
            {"type": "reasoning", "summary": [], "encrypted_content": "2", "id": "b"},
        ),
        (
            {"role": "user", "content": "Go.", "type": "message"},
            {"role": "user", "content": [{"type": "input_text", "text": "Go."}]},
        ),
    ],
)
def test_the_same_message_written_otherwise(one: dict[str, Any], other: dict[str, Any]) -> None:
    keys = MessageKeys()
    assert keys.of_value(one) is keys.of_value(other)


def test_a_thinking_blocks_signature_counts() -> None:
    def thought(signature: str) -> dict[str, Any]:
        block = {"type": "thinking", "thinking": "Hm.", "signature": signature}
        return {"role": "assistant", "content": [block, {"type": "text", "text": "Yes."}]}

    keys = MessageKeys()
    assert keys.of_value(thought("a")) is not keys.of_value(thought("b"))


def test_what_a_model_or_a_tool_wrote_at_length() -> None:
    call = [{"id": "x", "function": {"name": "run", "arguments": "{}"}}]
    assert _key(role="assistant", content="", tool_calls=call).substantial
    assert _key(role="tool", content="r").substantial
    assert _key(role="assistant", content="It is in the third file.").substantial
    assert not _key(role="assistant", content="Yes, it is.").substantial
    assert not _key(role="user", content="It is in the third file of the folder.").substantial
    assert _key(
        role="user", content=[{"type": "tool_result", "tool_use_id": "x", "content": "r"}]
    ).substantial


def test_equal_messages_are_one_object() -> None:
    keys = MessageKeys()
    first = Message({"role": "user", "content": "Go."}, 1)
    again = Message({"role": "user", "content": "Go."}, 4)
    key, _ = keys.key(first)
    other, shared = keys.key(again)
    assert other is key and shared.data is first.data and shared.index == 4


def test_nearly_equal() -> None:
    text = "You are an agent that mends parsers. It is 10:00 on a Monday."
    assert nearly_equal(text, text.replace("10:00", "11:30"))
    assert not nearly_equal(text, "You write a title of at most five words for what is asked.")
    assert not nearly_equal(text, text + text)
    words = " ".join(f"word{number}" for number in range(300))
    changed = words.replace("word10 ", "other ").replace("word150 ", "another ").replace("word290 ", "third ")
    assert nearly_equal(words, changed)
    assert nearly_equal("", "") and not nearly_equal("", "x")


def test_the_billing_line_is_no_system_text() -> None:
    line = {"type": "text", "text": "x-anthropic-billing-header: cch=1"}
    assert system_text([line, {"type": "text", "text": "You mend."}]) == "You mend."
    assert system_text(None) == ""


def test_texts_of_calls_in_every_dialect() -> None:
    chat = {"tool_calls": [{"function": {"arguments": '{"prompt": "Look.", "n": 1}'}}]}
    anthropic = {"content": [{"type": "tool_use", "input": {"task": {"prompt": "Look."}}}]}
    responses = {"type": "function_call", "arguments": '{"prompt": "Look."}'}
    for data in (chat, anthropic, responses):
        assert list(call_texts(data)) == ["Look."]
