"""Which client message each character of a built message came from."""

from __future__ import annotations

from typing import Any

import pytest
from tplaudit.probes.conversation import Message, Piece, Request
from tplaudit.probes.policies.base import Rewrite
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.policies.rewrite.role_merge import merge_roles
from tplaudit.probes.policies.rewrite.system_turns import merge_runs, strict_hoist
from tplaudit.probes.policies.rewrite.texts import Text, join
from tplaudit.probes.policies.rewrite.user_notes import note_or_hoist, to_user_notes


def conversation(*turns: tuple[str, Any]) -> tuple[Message, ...]:
    roles = {"S": "system", "D": "developer", "U": "user", "A": "assistant", "T": "tool"}
    return tuple(
        Message({"role": roles[role], "content": content}, n) for n, (role, content) in enumerate(turns)
    )


def owners(message: Message, part: int | None = None) -> str:
    """The owner of every character, one digit each."""
    text = message.content if part is None else message.content[part]["text"]
    return "".join(str(message.origin(offset, part)) for offset in range(len(text)))


def test_a_hoisted_block_belongs_to_each_message_that_it_joins() -> None:
    messages = conversation(("S", "a"), ("U", "u"), ("A", "x"), ("U", "v"), ("S", "b"))
    block = strict_hoist(messages, "").messages[0]
    assert block.content == "a\n\nb"
    assert block.pieces == (Piece(0, 0), Piece(1, 4))
    assert block.index == 0
    assert block.origins == (0, 4)


def test_a_hoisted_block_without_a_leading_one_has_the_index_of_its_first_message_with_text() -> None:
    messages = conversation(("U", "u"), ("S", ""), ("A", "a"), ("D", "b"), ("U", "v"), ("S", "c"))
    block, *rest = strict_hoist(messages, "").messages
    assert (block.index, block.data) == (3, {"role": "system", "content": "b\n\nc"})
    assert owners(block) == "3555"
    assert [message.index for message in rest] == [0, 2, 4]


def test_the_parts_of_one_message_all_belong_to_it() -> None:
    parts = [{"type": "text", "text": "ab"}, {"type": "image_url"}, "c"]
    messages = conversation(("U", "u"), ("S", parts), ("A", "a"), ("S", "d"))
    block = strict_hoist(messages, "").messages[0]
    assert block.content == "ab\nc\n\nd"
    assert block.pieces == (Piece(0, 1), Piece(4, 3))


def test_an_appended_note_starts_at_its_separator_and_ends_with_its_suffix() -> None:
    messages = conversation(("U", "q"), ("A", "a"), ("A", "b"), ("U", "host"), ("S", "n1"), ("S", "n2"))
    rewrite = to_user_notes(messages)
    assert isinstance(rewrite, Rewrite)
    host = rewrite.messages[-1]
    assert host.content == "host\n\n[System note]\nn1\n\nn2\n[/System note]"
    assert host.index == 3
    assert host.pieces == (Piece(0, 3), Piece(4, 4), Piece(22, 5))
    assert host.origin(21) == 4
    assert host.origin(len(host.content) - 1) == 5


def test_a_prepended_note_ends_where_the_separator_of_its_host_starts() -> None:
    host = note_or_hoist(conversation(("A", "a"), ("S", "n"), ("U", "host"))).messages[-1]
    note = "[System note]\nn\n[/System note]"
    assert host.content == f"{note}\n\nhost"
    assert host.pieces == (Piece(0, 1), Piece(len(note), 2))
    assert host.index == 2


def test_notes_on_both_sides_of_one_host() -> None:
    host = note_or_hoist(conversation(("A", "a"), ("S", "n"), ("U", "h"), ("S", "m"))).messages[-1]
    assert owners(host) == "1" * 30 + "2" * 3 + "3" * 32


def test_a_bare_note_belongs_to_the_system_message_and_its_keys_to_the_host() -> None:
    for empty in (None, ""):
        (host,) = note_or_hoist(conversation(("U", empty), ("S", "n"))).messages
        assert (host.index, host.pieces, host.origins) == (0, (Piece(0, 1),), (1,))
    (host,) = note_or_hoist(conversation(("U", []), ("S", "n"))).messages
    assert (host.index, host.pieces) == (0, (Piece(0, 1, 0),))


def test_a_note_in_a_list_covers_every_part() -> None:
    parts = [{"type": "text", "text": "p1"}, {"type": "text", "text": "p2", "cache_control": {}}]
    messages = conversation(("A", "a"), ("U", parts), ("S", "n"))
    host = note_or_hoist(messages).messages[-1]
    assert host.pieces == (Piece(0, 1, 0), Piece(0, 1, 1), Piece(2, 2, 1))
    assert host.content[1] == {
        "type": "text",
        "text": "p2\n\n[System note]\nn\n[/System note]",
        "cache_control": {},
    }
    messages = conversation(("A", "a"), ("S", "n"), ("U", parts))
    host = note_or_hoist(messages).messages[-1]
    assert host.pieces == (Piece(0, 1, 0), Piece(30, 2, 0), Piece(0, 2, 1))


def test_merged_roles_keep_both_and_shift_pieces_that_were_there() -> None:
    messages = conversation(("U", "u"), ("S", "n"), ("U", "v"), ("U", "w"))
    merged = note_or_hoist(messages).then(merge_roles).messages
    assert [message.index for message in merged] == [0]
    assert owners(merged[0]) == "0" + "1" * 32 + "2" * 3 + "3" * 3


def test_merged_lists_number_their_parts_anew() -> None:
    picture = {"type": "image_url", "image_url": {"url": "x"}}
    (turn,) = merge_roles(
        conversation(("U", "u"), ("U", [{"type": "text", "text": "v"}, picture]), ("U", "w"))
    ).messages
    assert [part["type"] for part in turn.content] == ["text", "text", "image_url", "text"]
    assert turn.pieces == (Piece(0, 0, 0), Piece(0, 1, 1), Piece(0, 1, 2), Piece(0, 2, 3))


def test_a_merged_turn_that_takes_the_later_content_belongs_to_the_later_message() -> None:
    (turn,) = merge_roles(conversation(("A", ""), ("A", "x"))).messages
    assert (turn.index, turn.content, turn.pieces) == (0, "x", (Piece(0, 1),))


def test_rewriting_what_is_built_already_shifts_its_pieces() -> None:
    built = Message({"role": "system", "content": "ab\n\ncd"}, 2, (Piece(0, 2), Piece(2, 3)))
    messages = (
        Message({"role": "system", "content": "x"}, 0),
        Message({"role": "user", "content": "u"}, 1),
        built,
    )
    assert strict_hoist(messages, "").messages[0].pieces == (Piece(0, 0), Piece(1, 2), Piece(5, 3))
    (note,) = (note_or_hoist(messages[1:])).messages
    assert owners(note) == "1" + "2" * 18 + "3" * 19
    parts = Message(
        {"role": "developer", "content": [{"type": "text", "text": "ab"}, {"type": "text", "text": "cd"}]},
        4,
        (Piece(0, 4, 0), Piece(1, 5, 0), Piece(0, 6, 1)),
    )
    (turn,) = merge_runs((parts,), "").messages
    assert (turn.content, owners(turn)) == ("ab\ncd", "45666")


def test_untouched_messages_are_the_very_same_objects() -> None:
    messages = conversation(("S", "s"), ("U", "u"), ("A", "a"))
    for name in ("as-is", "hoist", "note", "hoist+merge", "note+merge", "omlx", "omlx-strict"):
        after = parse_policy(name).prepare(Request(messages), None).request.messages  # type: ignore[arg-type]
        assert all(one is two for one, two in zip(after, messages, strict=True)), name


@pytest.mark.parametrize(
    "data",
    [
        {"role": "developer", "content": "a\nb"},
        {"role": "system", "content": "a\nb", "name": "x"},
        {
            "role": "system",
            "content": ["a", {"type": "text", "text": "b"}, {"type": "image_url"}, {"text": "c"}],
        },
    ],
)
def test_a_lone_system_message_is_reduced_to_role_and_text(data: dict[str, Any]) -> None:
    (turn,) = merge_runs((Message(data, 0),), "").messages
    assert (turn.data, turn.index, turn.pieces) == ({"role": "system", "content": "a\nb"}, 0, ())


@pytest.mark.parametrize("empty", ["", None, []])
@pytest.mark.parametrize("content", ["x", [{"type": "text", "text": "x"}]])
def test_a_later_turn_without_content_leaves_the_earlier_one_as_it_was(empty: Any, content: Any) -> None:
    messages = conversation(("U", content), ("U", empty))
    (turn,) = merge_roles(messages).messages
    assert turn is messages[0]


def test_contents_that_the_server_fails_on_stay_apart() -> None:
    messages = conversation(("U", "x"), ("U", 7), ("A", {"a": 1}), ("A", "y"))
    assert merge_roles(messages).messages == messages


@pytest.mark.parametrize(
    ("texts", "owned"),
    [
        (["a", "b"], "0111"),
        (["", "b"], "111"),
        (["a", "", "c"], "011222"),
    ],
)
def test_a_separator_belongs_to_the_text_after_it(texts: list[str], owned: str) -> None:
    text = join((Text(text, ((0, n),)) for n, text in enumerate(texts)), "\n\n")
    message = Message({"role": "user", "content": text.text}, 9, text.pieces())
    assert owners(message) == owned
