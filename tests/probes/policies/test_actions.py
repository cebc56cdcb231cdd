"""What a policy says about what it did to each system run, and why."""

from __future__ import annotations

from typing import Any

from tplaudit.probes.conversation import Message, Request
from tplaudit.probes.policies.registry import Action, parse_policy

CALL = {"tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": {}}}]}


def actions(policy: str, template: Any, *turns: Any, partial: bool = False) -> tuple[Action, ...]:
    roles = {"S": "system", "D": "developer", "U": "user", "A": "assistant", "T": "tool"}
    messages = tuple(
        Message({"role": roles[turn[0]], "content": turn[1], **(turn[2] if len(turn) > 2 else {})}, n)
        for n, turn in enumerate(turns)
    )
    return parse_policy(policy).prepare(Request(messages, partial=partial), template).actions


AFTER_TOOL = (("S", "s"), ("U", "u"), ("A", "", CALL), ("T", "r"), ("S", "n"))


def test_as_is_keeps_every_run(fake_template: Any) -> None:
    assert actions("as-is", fake_template(), *AFTER_TOOL) == (
        Action("kept", (0,), "passed on as it is"),
        Action("kept", (4,), "passed on as it is"),
    )


def test_hoist(fake_template: Any) -> None:
    first, second, third = actions(
        "hoist", fake_template(), ("D", "a"), ("S", "b"), ("U", "u"), ("S", ""), ("S", "n")
    )
    assert (first.kind, first.messages) == ("merged", (0, 1))
    assert (
        first.why
        == "neighbouring system turns are joined; is first in the conversation; the role becomes system"
    )
    assert second == Action("dropped", (3,), "no text")
    assert third == Action("hoisted", (4,), "moved into the first system block")


def test_hoist_without_text(fake_template: Any) -> None:
    (only,) = actions("hoist", fake_template(), ("U", "u"), ("S", ""), ("A", "a"))
    assert only == Action("kept", (1,), "no system message has text, so all messages stay as they are")


def test_a_refused_note_names_its_run_and_hoists_all(fake_template: Any) -> None:
    turns = (("U", "u"), ("S", "ok"), ("A", "", CALL), ("S", ""), ("S", "n"), ("U", "v"), ("S", "m"))
    refused, *rest = actions("note", fake_template(), *turns)
    assert refused == Action("refused", (3, 4), "no note after an assistant that calls tools")
    why = "the note of message 3 was refused, and one refusal hoists every system turn"
    assert rest == [
        Action("hoisted", (1,), why),
        Action("dropped", (3,), "no text"),
        Action("hoisted", (4,), why),
        Action("hoisted", (6,), why),
    ]


def test_a_refusal_says_what_stands_beside_the_run(fake_template: Any) -> None:
    picture = [{"type": "image_url", "image_url": {"url": "x"}}]
    (refused, *_) = actions("note", fake_template(), ("U", picture), ("S", "n"))
    assert refused.why == (
        "no user turn to carry the note: a user turn that came from a tool or is not text only before it, "
        "nothing after it"
    )
    (refused, *_) = actions("note", fake_template(), *AFTER_TOOL, ("A", "a"))
    assert refused.why == (
        "no user turn to carry the note: a turn of role tool before it, a turn of role assistant after it"
    )


def test_notes_say_which_user_turn_carries_them(fake_template: Any) -> None:
    turns = (("U", "u"), ("S", "n"), ("A", "a"), ("S", "m"), ("U", "v"), ("U", "w"))
    appended, prepended, merged = actions("note+merge", fake_template(), *turns)
    assert appended == Action("noted", (1,), "appended to the user turn before it (message 0)")
    assert prepended == Action("noted", (3,), "put at the beginning of the user turn after it (message 4)")
    assert merged == Action("merged", (3, 4, 5), "neighbouring user turns are joined")


def test_a_merge_says_what_is_lost(fake_template: Any) -> None:
    turns = (("A", "a"), ("A", "b", {**CALL, "reasoning_content": "r", "name": None}), ("U", "u"))
    (merged,) = actions("hoist+merge", fake_template(), *turns)
    assert (
        merged.why
        == "neighbouring assistant turns are joined; reasoning_content, tool_calls of message 1 is lost"
    )


def test_omlx_in_place(fake_template: Any) -> None:
    turns = (("S", "s"), ("U", "u"), ("S", "n"), ("A", "a"), ("U", "v"), ("S", "m"), ("S", "o"))
    assert actions("omlx:route=none", fake_template(), *turns) == (
        Action("probed", (2,), "user/between: the template leaves the system turn in place"),
        Action("probed", (5, 6), "user/tail: the template leaves the system turn in place"),
        Action("kept", (0,), "is first in the conversation"),
        Action("kept", (2,), "left in place"),
        Action("merged", (5, 6), "neighbouring system turns are joined; left in place"),
    )


def test_omlx_on_a_strict_template(fake_template: Any) -> None:
    probed, refused, kept, hoisted = actions("omlx:route=none", fake_template("raises"), *AFTER_TOOL)
    assert probed == Action(
        "probed", (4,), "tool/tail: the template raises TemplateError: a system turn may only come first"
    )
    assert (refused.kind, refused.messages) == ("refused", (4,))
    assert (kept.kind, kept.messages) == ("kept", (0,))
    assert (hoisted.kind, hoisted.messages) == ("hoisted", (4,))


def test_omlx_names_the_runs_that_it_never_leaves_in_place(fake_template: Any) -> None:
    turns = (("U", "u"), ("S", "n"), ("U", "v"), ("A", "a"), ("S", "m"), ("U", "w"), ("S", "o"))
    first, second, *rest = actions("omlx:route=none", fake_template(), *turns)
    assert first == Action(
        "unsupported", (1,), "before a user turn the server never leaves a system turn in place"
    )
    assert second == Action(
        "unsupported", (4,), "after a turn of role assistant the server never leaves a system turn in place"
    )
    assert [action.kind for action in rest] == ["noted", "noted", "noted", "merged"]


def test_omlx_strict_and_partial(fake_template: Any) -> None:
    turns = (("U", "u"), ("S", "n"), ("A", "a"))
    *_, hoisted = actions("omlx-strict:route=none", fake_template("raises"), *turns)
    assert hoisted == Action("hoisted", (1,), "hoisted, because the server keeps no notes")
    (hoisted,) = actions("omlx:route=none", fake_template(), *turns, partial=True)
    assert hoisted == Action(
        "hoisted", (1,), "hoisted without a probe, because the last message is to be continued"
    )
