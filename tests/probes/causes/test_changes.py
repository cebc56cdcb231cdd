"""What a client changed in messages that it had sent before."""

from __future__ import annotations

from typing import Any

import pytest
from tplaudit.probes.causes.changes import changes, flat_text, moved, restored
from tplaudit.probes.causes.client import volatile_stretch
from tplaudit.probes.causes.reasoning import reasoning_of, without_reasoning
from tplaudit.probes.causes.settings import CLIENT_SETTINGS, kwarg_line, other_policies
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


@pytest.mark.parametrize(
    ("old", "new", "role", "stretch"),
    [
        (
            "Today is Monday, be kind to users.",
            "Today is Friday, be kind to users.",
            "system",
            ("Monday", "Friday", 9),
        ),
        ("Today is Monday, be kind to users.", "Today is Friday, be kind to users.", "user", None),
        (
            "It is 09:10, be kind to all users.",
            "It is 09:42, be kind to all users.",
            "user",
            ("09:10", "09:42", 6),
        ),
        (
            "<system-reminder>On main, clean.",
            "<system-reminder>On main, dirty.",
            "user",
            ("clean.", "dirty.", 26),
        ),
        ("short 1", "2 others", "system", None),
        ("x" * 500 + " 1", "y" * 500 + " 1", "system", None),
    ],
)
def test_volatile_stretches(old: str, new: str, role: str, stretch: Any) -> None:
    assert volatile_stretch({"role": role, "content": old}, {"role": role, "content": new}) == stretch


def test_texts_of_both_forms() -> None:
    assert flat_text("one") == flat_text([{"type": "text", "text": "one"}]) == flat_text(["one"]) == "one"
    assert flat_text(None) == ""
    assert flat_text([{"type": "image"}]) is None


@pytest.mark.parametrize(
    "data",
    [
        {"content": "yes", "reasoning_content": "why"},
        {"content": "yes", "reasoning": "why"},
        {"content": "<think>\nwhy\n</think>\n\nyes"},
        {"content": [{"type": "thinking", "thinking": "why"}, {"type": "text", "text": "yes"}]},
    ],
)
def test_reasoning_in_every_form(data: dict[str, Any]) -> None:
    message = Message({"role": "assistant", **data}, 3)
    assert reasoning_of(message) == "why"
    bare = without_reasoning(message)
    assert bare is not None
    assert (reasoning_of(bare), flat_text(bare.data["content"]), bare.index) == ("", "yes", 3)
    assert without_reasoning(bare) is None


def test_lines_to_paste() -> None:
    assert kwarg_line("mlx-lm", "preserve_thinking", True) == (
        "mlx_lm.server … --chat-template-args '{\"preserve_thinking\": true}'"
    )
    assert "in every request" in kwarg_line("as-is", "preserve_thinking", True)
    assert "--chat-template-kwargs" in kwarg_line("llama-cpp:reasoning_preserve=off", "a", 1)
    for text, name in (
        ("x-anthropic-billing-header: cc_version=2; cch=1a2b3;", "CLAUDE_CODE_ATTRIBUTION_HEADER=0"),
        ("<total_tokens>14999841 tokens left</total_tokens>", "totalTokensReminder=off"),
        ("gitStatus: This is the git status", "includeGitInstructions=false"),
    ):
        assert [each.set for each in CLIENT_SETTINGS if each.without(text) != text] == [name]
    for text in ("You pilot ships.", "Never run git status in this repository.", "Use `gitStatus` there."):
        assert all(each.without(text) == text for each in CLIENT_SETTINGS)
    assert [each.policy for each in other_policies("omlx-strict")][:2] == ["omlx", "as-is"]
    assert [each.policy for each in other_policies("note")] == ["as-is", "note+merge"]
    assert "hoist" in [each.policy for each in other_policies("hoist+merge")]
