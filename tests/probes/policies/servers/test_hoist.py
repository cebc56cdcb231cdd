from typing import Any

from chat_messages import actions
from tplaudit.probes.policies.registry import Action


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
