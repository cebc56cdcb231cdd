from typing import Any

from chat_messages import AFTER_TOOL, actions
from tplaudit.probes.policies.registry import Action


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
