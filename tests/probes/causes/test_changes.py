"""What a client changed in messages that it had sent before."""

from __future__ import annotations

import pytest
from tplaudit.probes.causes.changes import changes, flat_text, moved, restored
from tplaudit.probes.conversation import Message


def messages(text: str) -> tuple[Message, ...]:
    """Read `u:one a:two` as messages."""
    roles = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}
    pairs = [word.split(":") for word in text.split()]
    return tuple(
        Message({"role": roles[role], "content": content}, index)
        for index, (role, content) in enumerate(pairs)
    )


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("u:1 a:2 u:3", "u:1 a:2 u:3 a:4", []),
        ("u:1 a:2 u:3", "u:1 a:2 u:3", []),
        ("u:1 a:2 u:3", "u:9 a:2 u:3 a:4", [("replace", 0, 0)]),
        ("u:1 a:2 u:3", "u:1 a:2 u:9 a:4 u:5", [("replace", 2, 2)]),
        ("u:1 a:2 u:3", "u:1 u:3 a:4", [("delete", 1, 1)]),
        ("u:1 a:2 u:3", "u:1 a:2 s:9 u:3 a:4", [("insert", 2, 2)]),
        ("u:1 a:2 u:3", "u:1 a:2 a:4 u:5", [("delete", 2, 2)]),
        ("u:1 a:2 u:3 a:4 u:5", "u:1 a:9 u:3 a:8 u:5 a:6", [("replace", 1, 1), ("replace", 3, 3)]),
        # the answer's text comes again later: a changed message is not an inserted one
        ("u:1 a:2 u:3", "u:9 a:2 u:3 a:4 u:1", [("replace", 0, 0)]),
        ("s:0 u:1 a:2 t:3 a:4 u:5", "s:0 u:sum a:4 u:5 a:6", [("replace", 1, 1)]),
    ],
)
def test_changes(before: str, after: str, found: list[tuple[str, int, int]]) -> None:
    old, new = messages(before), messages(after)
    assert [(each.kind, each.old.start, each.new.start) for each in changes(old, new)] == found


@pytest.mark.parametrize(
    ("before", "after", "whole"),
    [
        ("u:1 a:2 u:3", "u:9 a:2 u:3 a:4", "u:1 a:2 u:3 a:4"),
        ("u:1 a:2 u:3", "u:1 u:3 a:4", "u:1 a:2 u:3 a:4"),
        ("u:1 u:r a:2 u:3", "u:1 a:2 u:3 a:4 u:r", "u:1 u:r a:2 u:3 a:4 u:r"),
        ("u:1 a:2 u:3", "u:1 a:2 u:9 a:4", "u:1 a:2 u:3 a:4"),
    ],
)
def test_everything_put_back(before: str, after: str, whole: str) -> None:
    found = restored(messages(before), messages(after))
    assert [each.data for each in found] == [each.data for each in messages(whole)]


def test_a_message_that_only_changed_its_place() -> None:
    old, new = messages("u:1 u:r a:2 u:3"), messages("u:1 a:2 u:3 u:r a:4")
    assert moved(old, new, changes(old, new)) == (1, 3)
    same = messages("u:1 u:x a:2 u:3")
    assert moved(old, same, changes(old, same)) is None


def test_texts_of_both_forms() -> None:
    assert flat_text("one") == flat_text([{"type": "text", "text": "one"}]) == flat_text(["one"]) == "one"
    assert flat_text(None) == ""
    assert flat_text([{"type": "image"}]) is None
