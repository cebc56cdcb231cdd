"""Where texts stand in a prompt, which messages have none there, and what became of system turns."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tplaudit.probes.attribution.prompt_diff import DiffSide, compare, unified
from tplaudit.probes.attribution.rendered import Rendered, render_turn
from tplaudit.probes.attribution.text_spans import TextSpan, find_texts
from tplaudit.probes.conversation import Message, Piece, Request
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.templates.template import ChatTemplate
from tplaudit.probes.tokenization.special_tokens import special_texts
from tplaudit.probes.transcripts.grouping.conversations import Continuation

PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"


def loop(body: str, which: str = "") -> str:
    return f"{{% for m in messages {which} %}}{body}{{% endfor %}}"


def messages(*given: tuple[str, Any]) -> tuple[Message, ...]:
    return tuple(Message({"role": role, "content": content}, n) for n, (role, content) in enumerate(given))


def owners(prompt: str, *given: tuple[str, Any]) -> list[tuple[str, int]]:
    return [(prompt[span.start : span.end], span.message) for span in find_texts(prompt, messages(*given))]


def rendered(source: str, policy: str, *given: tuple[str, Any], **fields: Any) -> Rendered:
    template = ChatTemplate({"default": source}, source="test")
    request = Request(messages(*given), **fields)
    return render_turn(
        Continuation(1, 1, None, "begins"), request, template, [parse_policy(policy)]
    ).policies[0]


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


def test_a_dropped_text_is_missing_also_where_it_stands_twice() -> None:
    source = loop("{% if m.role != 'system' or loop.first %}{{ m.content }};{% endif %}")
    given = (("system", "be brief"), ("user", "hi"), ("system", "be brief"), ("user", "hi"), ("system", "hi"))
    assert rendered(source, "as-is", *given).text_missing_of == (2, 4)


@pytest.mark.parametrize("form", ["upper", "tojson", "replace(' ', '_')"])
def test_a_rewritten_text_is_not_missing(form: str) -> None:
    assert (
        rendered(
            loop(f"{{{{ m.content | {form} }}}}"), "as-is", ("user", 'one "two"'), ("assistant", "x y")
        ).text_missing_of
        == ()
    )


def test_texts_that_the_server_leaves_out_are_missing() -> None:
    counter = "<total_tokens>99 tokens left</total_tokens>"
    row = rendered(PLAIN, "rapid-mlx:route=none", ("user", "hi"), ("system", counter))
    assert row.text_missing_of == (1,)
    assert [turn.outcome for turn in row.system_turns] == ["dropped"]


def test_a_message_without_text_is_not_missing() -> None:
    row = rendered(PLAIN, "hoist", ("system", " "), ("user", "hi"), ("assistant", None), ("system", []))
    assert row.text_missing_of == ()
    assert row.system_turns == ()


def test_only_a_text_without_letters_is_told_by_the_string_alone() -> None:
    source = loop("{{ m.content }}", "if m.role == 'user'")
    assert rendered(source, "as-is", ("user", "hi"), ("system", "…!?")).text_missing_of == (1,)
    assert rendered(source, "as-is", ("user", "…!?"), ("user", "12")).text_missing_of == ()


# System turns


@pytest.mark.parametrize(
    ("policy", "given", "outcomes"),
    [
        ("as-is", ("s", "u", "s", "d"), {0: "kept", 2: "kept", 3: "kept"}),
        ("hoist", ("s", "u", "s", "d"), {0: "kept", 2: "hoisted", 3: "hoisted"}),
        ("hoist", ("u", "s"), {1: "hoisted"}),
        ("note", ("s", "u", "s", "a", "u"), {0: "kept", 2: "noted"}),
        ("rapid-mlx:route=none,relocate=on", ("u", "a", "s", "u"), {2: "relocated"}),
        ("mtplx:version=2.12", ("u", "a", "s", "u"), {2: "noted"}),
        ("mlx-vlm:route=responses", ("s", "u", "s", "a"), {0: "kept", 2: "hoisted"}),
    ],
)
def test_fates(policy: str, given: tuple[str, ...], outcomes: dict[int, str]) -> None:
    roles = {"s": "system", "d": "developer", "u": "user", "a": "assistant"}
    row = rendered(PLAIN, policy, *((roles[letter], f"text {n}") for n, letter in enumerate(given)))
    assert {turn.message: turn.outcome for turn in row.system_turns} == outcomes
    assert row.text_missing_of == ()


def test_a_template_without_a_system_role_gets_the_text_elsewhere() -> None:
    source = loop("{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ m.content }}")
    row = rendered(source, "llama-cpp", ("system", "be brief"), ("user", "hi"))
    assert [(turn.outcome, turn.leading) for turn in row.system_turns] == [("relocated", True)]


def test_what_the_template_does_to_a_turn_that_the_server_keeps() -> None:
    moving = "".join(loop("{{ m.content }}", f"if m.role {sign} 'system'") for sign in ("==", "!="))
    given = (("system", "first"), ("user", "hi"), ("system", "later"))
    assert [turn.outcome for turn in rendered(moving, "as-is", *given).system_turns] == ["kept", "moved"]
    losing = "{{ messages[0].content }}{{ messages[1].content }}"
    assert [turn.outcome for turn in rendered(losing, "as-is", *given).system_turns] == ["kept", "lost"]


def test_a_top_level_system_text_is_a_leading_turn() -> None:
    given = (("user", [{"type": "text", "text": "hi"}]),)
    row = rendered(PLAIN, "mtplx", *given, dialect="anthropic-messages", system="be brief")
    assert [(turn.message, turn.outcome, turn.leading) for turn in row.system_turns] == [(-1, "kept", True)]


# Special tokens


def test_special_tokens_are_the_models_own_and_the_templates_markup() -> None:
    template = ChatTemplate(
        {"default": "<|im_start|>[INST]<think>{{ messages }}"},
        source="t",
        special_tokens={"bos_token": "<s>", "x": ""},
    )
    prompt = "<s><|im_start|>[INST] <div> <think> <|im_end|> [NOTE]"
    assert special_texts([prompt], template) == ("<|im_start|>", "<think>", "[INST]", "<s>")


# Diffs


def test_a_diff_of_lines_ends_where_the_text_ends() -> None:
    text = unified("a\u2028b\r\nc", "a\u2028b\r\nd\n", "old", "new")
    assert text == "--- old\n+++ new\n@@ -1,2 +1,2 @@\n a\u2028b\r\n-c\n\\ No newline at end of file\n+d\n"


def test_equal_and_missing_prompts() -> None:
    one, other = DiffSide("a", 1, None), DiffSide("b", 1, "boom")
    assert compare(one, "x", one, "x").unified == ""
    assert compare(one, "x", one, "x").same is True
    missing = compare(one, "x", other, None)
    assert (missing.same, missing.shared_chars, missing.unified) == (None, None, None)


@given(st.text("ab\n", max_size=30), st.text("ab\n", max_size=30))
def test_a_diff_leads_from_one_text_to_the_other(old: str, new: str) -> None:
    body = unified(old, new, "o", "n").split("\n")
    found = compare(DiffSide("o", 1, None), old, DiffSide("n", 1, None), new)
    assert found.same is (old == new)
    assert found.shared_chars is not None
    assert old[: found.shared_chars] == new[: found.shared_chars]
    added = sum(line.startswith("+") and not line.startswith("+++") for line in body)
    removed = sum(line.startswith("-") and not line.startswith("---") for line in body)
    lines = [text.count("\n") + (not text.endswith("\n") and text != "") for text in (old, new)]
    assert added - removed == lines[1] - lines[0]
