"""Where texts stand in a prompt, which messages have none there, and what became of system turns."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tplaudit.probes.attribution.text_spans import TextSpan, find_texts
from tplaudit.probes.conversation import Message, Piece


def messages(*given: tuple[str, Any]) -> tuple[Message, ...]:
    return tuple(Message({"role": role, "content": content}, n) for n, (role, content) in enumerate(given))


def owners(prompt: str, *given: tuple[str, Any]) -> list[tuple[str, int]]:
    return [(prompt[span.start : span.end], span.message) for span in find_texts(prompt, messages(*given))]


# Spans


def test_texts_in_order() -> None:
    prompt = "<user>a b<assistant>c<user>a b"
    found = owners(prompt, ("user", "a b"), ("assistant", "c"), ("user", " a b\n"))
    assert found == [("a b", 0), ("c", 1), ("a b", 2)]


def test_a_moved_text_is_found_before_its_predecessor() -> None:
    assert owners("<s>now<u>hello", ("user", "hello"), ("system", "now")) == [("now", 1), ("hello", 0)]


def test_a_short_text_is_not_taken_out_of_a_longer_one() -> None:
    found = owners("<u>it is ok so far<a>ok", ("user", "it is ok so far"), ("assistant", "ok"))
    assert found == [("it is ok so far", 0), ("ok", 1)]


def test_quoted_texts_and_replies_without_their_reasoning() -> None:
    prompt = 'tool: "say \\"hi\\"\\n", then done'
    given = (("tool", 'say "hi"\n'), ("assistant", "<think>hm</think>\n\ndone"))
    assert owners(prompt, *given) == [('say \\"hi\\"', 0), ("done", 1)]


def test_a_built_content_has_several_owners() -> None:
    message = Message({"role": "system", "content": "one\n\ntwo"}, 0, (Piece(0, 0), Piece(3, 4)))
    assert [(span.start, span.end, span.message) for span in find_texts("..one\n\ntwo", (message,))] == [
        (2, 5, 0),
        (7, 10, 4),
    ]


def test_parts_reasoning_and_arguments() -> None:
    call = {"function": {"name": "f", "arguments": {"path": "a.py"}}}
    data = {"role": "assistant", "content": [{"type": "text", "text": "go"}], "reasoning_content": "why"}
    prompt = "<think>why</think>go {'path': 'a.py'}"
    found = find_texts(prompt, (Message({**data, "tool_calls": [call]}, 0),))
    assert [(prompt[span.start : span.end], span.field) for span in found] == [
        ("why", "reasoning"),
        ("go", "content"),
        ("a.py", "tool_calls"),
    ]


@given(st.lists(st.text("ab \n", max_size=4), max_size=8), st.text("ab<> \n", max_size=60))
def test_spans_never_overlap_and_hold_their_text(texts: list[str], prompt: str) -> None:
    given = messages(*(("user", text) for text in texts))
    spans = find_texts(prompt, given)
    assert all(prompt[span.start : span.end] == texts[span.message].strip() for span in spans)
    ends = [0, *(span.end for span in spans)]
    assert all(span.start >= end for span, end in zip(spans, ends, strict=False))
    assert len({span.message for span in spans}) == len(spans)


@given(st.lists(st.text("ab ", min_size=1, max_size=4).filter(str.strip), max_size=8))
def test_all_texts_of_a_plain_prompt_are_found_where_they_are(texts: list[str]) -> None:
    prompt = "".join(f"<u>{text}</u>" for text in texts)
    spans = find_texts(prompt, messages(*(("user", text) for text in texts)))
    assert [span.message for span in spans] == list(range(len(texts)))
    assert all(isinstance(span, TextSpan) and span.field == "content" for span in spans)


# Missing texts


# System turns


# Special tokens


# Diffs
