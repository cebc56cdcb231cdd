from typing import Any

import pytest
from chat_messages import CALLS, actions, conversation, owners
from tplaudit.probes.conversation import Piece
from tplaudit.probes.policies.rewrite.role_merge import merge_roles
from tplaudit.probes.policies.rewrite.user_notes import note_or_hoist


def test_a_merge_says_what_is_lost(fake_template: Any) -> None:
    turns = (("A", "a"), ("A", "b", {**CALLS, "reasoning_content": "r", "name": None}), ("U", "u"))
    (merged,) = actions("hoist+merge", fake_template(), *turns)
    assert (
        merged.why
        == "neighbouring assistant turns are joined; reasoning_content, tool_calls of message 1 is lost"
    )


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


@pytest.mark.parametrize("empty", ["", None, []])
@pytest.mark.parametrize("content", ["x", [{"type": "text", "text": "x"}]])
def test_a_later_turn_without_content_leaves_the_earlier_one_as_it_was(empty: Any, content: Any) -> None:
    messages = conversation(("U", content), ("U", empty))
    (turn,) = merge_roles(messages).messages
    assert turn is messages[0]


def test_contents_that_the_server_fails_on_stay_apart() -> None:
    messages = conversation(("U", "x"), ("U", 7), ("A", {"a": 1}), ("A", "y"))
    assert merge_roles(messages).messages == messages
