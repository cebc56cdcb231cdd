from typing import Any

from chat_messages import AFTER_TOOL, CALLS, actions
from tplaudit.probes.policies.registry import Action


def test_a_refused_note_names_its_run_and_hoists_all(fake_template: Any) -> None:
    turns = (("U", "u"), ("S", "ok"), ("A", "", CALLS), ("S", ""), ("S", "n"), ("U", "v"), ("S", "m"))
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
