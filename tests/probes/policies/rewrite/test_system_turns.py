from typing import Any

import pytest
from chat_messages import S, U, conversation, owners, part
from tplaudit.probes.conversation import Message, Piece
from tplaudit.probes.policies.rewrite.system_turns import merge_runs, strict_hoist
from tplaudit.probes.policies.rewrite.user_notes import note_or_hoist


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
    assert (block.index, block.data) == (3, S("b\n\nc"))
    assert owners(block) == "3555"
    assert [message.index for message in rest] == [0, 2, 4]


def test_the_parts_of_one_message_all_belong_to_it() -> None:
    parts = [part("ab"), {"type": "image_url"}, "c"]
    messages = conversation(("U", "u"), ("S", parts), ("A", "a"), ("S", "d"))
    block = strict_hoist(messages, "").messages[0]
    assert block.content == "ab\nc\n\nd"
    assert block.pieces == (Piece(0, 1), Piece(4, 3))


@pytest.mark.parametrize(
    "data",
    [
        {"role": "developer", "content": "a\nb"},
        S("a\nb", name="x"),
        S(["a", part("b"), {"type": "image_url"}, {"text": "c"}]),
    ],
)
def test_a_lone_system_message_is_reduced_to_role_and_text(data: dict[str, Any]) -> None:
    (turn,) = merge_runs((Message(data, 0),), "").messages
    assert (turn.data, turn.index, turn.pieces) == (S("a\nb"), 0, ())


def test_rewriting_what_is_built_already_shifts_its_pieces() -> None:
    built = Message(S("ab\n\ncd"), 2, (Piece(0, 2), Piece(2, 3)))
    messages = (Message(S("x"), 0), Message(U("u"), 1), built)
    assert strict_hoist(messages, "").messages[0].pieces == (Piece(0, 0), Piece(1, 2), Piece(5, 3))
    (note,) = (note_or_hoist(messages[1:])).messages
    assert owners(note) == "1" + "2" * 18 + "3" * 19
    parts = Message(
        {"role": "developer", "content": [part("ab"), part("cd")]},
        4,
        (Piece(0, 4, 0), Piece(1, 5, 0), Piece(0, 6, 1)),
    )
    (turn,) = merge_runs((parts,), "").messages
    assert (turn.content, owners(turn)) == ("ab\ncd", "45666")
