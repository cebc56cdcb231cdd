"""Template objects that move system turns themselves."""

from typing import Any

import pytest
from tplaudit.probes.conversation import Message, Piece, Request
from tplaudit.probes.policies.registry import Prepared
from tplaudit.probes.policies.servers.omlx import Omlx

CALL = {"tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": {}}}]}


def message(role: str, content: Any, **keys: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **keys}


def reminders_first(messages: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """Put each system run after a user turn, and before an assistant or the end, in front of that turn."""
    output: list[dict[str, Any]] = []
    n = 0
    while n < len(messages) and messages[n]["role"] == "system":
        output.append(messages[n])
        n += 1
    while n < len(messages):
        if messages[n]["role"] != "system":
            output.append(messages[n])
            n += 1
            continue
        texts = []
        while n < len(messages) and messages[n]["role"] == "system":
            texts.append(messages[n]["content"])
            n += 1
        following = messages[n]["role"] if n < len(messages) else "assistant"
        if output[-1]["role"] != "user" or following != "assistant":
            return None
        output.insert(-1, {"role": "latest_reminder", "content": "\n\n".join(texts)})
    return output


def prepare(template: Any, messages: list[dict[str, Any]], *, partial: bool = False) -> Prepared:
    request = Request(tuple(Message(data, n) for n, data in enumerate(messages)), partial=partial)
    return Omlx("omlx").prepare(request, template)


def data(after: Prepared) -> list[Any]:
    return [message.data for message in after.request.messages]


NOTE = "[System note]\nn\n[/System note]"
VECTORS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]], bool]] = {
    "L1": (
        [message("system", "base"), message("user", "Hello"), message("system", "Plan mode")],
        [message("system", "base"), message("latest_reminder", "Plan mode"), message("user", "Hello")],
        False,
    ),
    "L2": (
        [
            message("user", "u1"),
            message("system", "n1"),
            message("system", "n2"),
            message("assistant", "a1"),
            message("user", "u2"),
        ],
        [
            message("latest_reminder", "n1\n\nn2"),
            message("user", "u1"),
            message("assistant", "a1"),
            message("user", "u2"),
        ],
        False,
    ),
    "L3": (
        [
            message("user", "u1"),
            message("assistant", "", **CALL),
            message("tool", "r"),
            message("system", "n"),
        ],
        [
            message("system", "n"),
            message("user", "u1"),
            message("assistant", "", **CALL),
            message("tool", "r"),
        ],
        False,
    ),
    "L4": (
        [message("user", "u1"), message("assistant", "a"), message("system", "n"), message("user", "u2")],
        [message("user", "u1"), message("assistant", "a"), message("user", f"{NOTE}\n\nu2")],
        False,
    ),
    "L5": (
        [message("user", "u1"), message("system", "n")],
        [message("system", "n"), message("user", "u1")],
        True,
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_vector(name: str, fake_template: Any) -> None:
    before, after, partial = VECTORS[name]
    template = fake_template("raises", supports=False, relocate=reminders_first)
    assert data(prepare(template, before, partial=partial)) == after


def test_reminders_keep_their_origins(fake_template: Any) -> None:
    messages = [message("user", "u1")]
    for _ in range(2):
        messages += [
            message("system", "n1"),
            message("system", "n2"),
            message("assistant", "a"),
            message("user", "u"),
        ]
    after = prepare(fake_template(relocate=reminders_first), messages)
    first, _, _, second, *_ = after.request.messages
    assert (first.index, first.pieces) == (1, (Piece(0, 1), Piece(2, 2)))
    assert (second.index, second.pieces) == (5, (Piece(0, 5), Piece(2, 6)))
    assert [each.index for each in after.request.messages] == [1, 0, 3, 5, 4, 7, 8]
    (moved,) = [action for action in after.actions if action.kind == "relocated"]
    assert moved.messages == (1, 2, 5, 6)


def test_a_hook_may_copy_and_change_messages(fake_template: Any) -> None:
    def copying(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        user, system = messages
        user["content"][0]["text"] = "v"
        return [{"role": "system", "content": "new"}, dict(system), user]

    def text(word: str) -> list[dict[str, Any]]:
        return [{"type": "text", "text": word}]

    given = [message("user", text("u")), message("system", "n")]
    after = prepare(fake_template(relocate=copying), given)
    assert given == [message("user", text("u")), message("system", "n")]
    assert data(after) == [message("system", "new\n\nn"), message("user", text("v"))]
    assert [each.index for each in after.request.messages] == [0, 0]
    assert after.request.messages[0].origin(5) == 1


def raising(messages: list[dict[str, Any]]) -> None:
    messages.clear()
    raise RuntimeError("no")


@pytest.mark.parametrize(
    "hook", [lambda messages: None, lambda messages: "text", lambda messages: [1], raising]
)
def test_a_hook_that_gives_nothing_usable_is_ignored(hook: Any, fake_template: Any) -> None:
    messages = [message("user", "u"), message("system", "n")]
    assert data(prepare(fake_template(relocate=hook), messages)) == messages


def test_the_hook_is_not_asked_without_a_later_system_turn(fake_template: Any) -> None:
    asked: list[Any] = []
    prepare(fake_template(relocate=asked.append), [message("system", "s"), message("user", "u")])
    assert asked == []
