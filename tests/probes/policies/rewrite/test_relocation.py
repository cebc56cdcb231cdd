"""Template objects that move system turns themselves."""

from typing import Any

import pytest
from chat_messages import CALLS, A, S, T, U, data, request_of
from tplaudit.probes.conversation import Piece
from tplaudit.probes.policies.registry import Prepared
from tplaudit.probes.policies.servers.omlx import Omlx


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


def reminder(words: str) -> dict[str, Any]:
    return {"role": "latest_reminder", "content": words}


def prepare(template: Any, messages: list[dict[str, Any]], *, partial: bool = False) -> Prepared:
    request = request_of(messages, partial=partial)
    return Omlx("omlx").prepare(request, template)


NOTE = "[System note]\nn\n[/System note]"
VECTORS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]], bool]] = {
    "L1": ([S("base"), U("Hello"), S("Plan mode")], [S("base"), reminder("Plan mode"), U("Hello")], False),
    "L2": (
        [U("u1"), S("n1"), S("n2"), A("a1"), U("u2")],
        [reminder("n1\n\nn2"), U("u1"), A("a1"), U("u2")],
        False,
    ),
    "L3": ([U("u1"), A("", **CALLS), T("r"), S("n")], [S("n"), U("u1"), A("", **CALLS), T("r")], False),
    "L4": ([U("u1"), A("a"), S("n"), U("u2")], [U("u1"), A("a"), U(f"{NOTE}\n\nu2")], False),
    "L5": ([U("u1"), S("n")], [S("n"), U("u1")], True),
}


@pytest.mark.parametrize("name", VECTORS)
def test_vector(name: str, fake_template: Any) -> None:
    before, after, partial = VECTORS[name]
    template = fake_template("raises", supports=False, relocate=reminders_first)
    assert data(prepare(template, before, partial=partial)) == after


def test_reminders_keep_their_origins(fake_template: Any) -> None:
    messages = [U("u1")]
    for _ in range(2):
        messages += [S("n1"), S("n2"), A("a"), U("u")]
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

    given = [U(text("u")), S("n")]
    after = prepare(fake_template(relocate=copying), given)
    assert given == [U(text("u")), S("n")]
    assert data(after) == [S("new\n\nn"), U(text("v"))]
    assert [each.index for each in after.request.messages] == [0, 0]
    assert after.request.messages[0].origin(5) == 1


def raising(messages: list[dict[str, Any]]) -> None:
    messages.clear()
    raise RuntimeError("no")


@pytest.mark.parametrize(
    "hook", [lambda messages: None, lambda messages: "text", lambda messages: [1], raising]
)
def test_a_hook_that_gives_nothing_usable_is_ignored(hook: Any, fake_template: Any) -> None:
    messages = [U("u"), S("n")]
    assert data(prepare(fake_template(relocate=hook), messages)) == messages


def test_the_hook_is_not_asked_without_a_later_system_turn(fake_template: Any) -> None:
    asked: list[Any] = []
    prepare(fake_template(relocate=asked.append), [S("s"), U("u")])
    assert asked == []
