"""What a server made of the messages, planted in random conversations."""

from __future__ import annotations

from hypothesis import given, settings
from planted import (
    STEADY,
    Messages,
    check,
    conversations,
    replayed,
    shared,
    texts,
)


@settings(max_examples=20, deadline=None)
@given(conversation=conversations(), text=texts)
def test_a_server_hoists(conversation: tuple[Messages, Messages], text: str) -> None:
    first, second = conversation
    at = len(first)
    later = [*second[:at], {"role": "system", "content": f"Reminder: {text}"}]
    hoisted = [{**later[0], "content": f"{later[0]['content']}\n\nReminder: {text}"}, *later[1:at]]
    won = shared(STEADY, first, later) - shared(STEADY, first, hoisted)
    turn = replayed(STEADY, first, later, "hoist").turns[1]
    check(turn, "system-hoisted", at, won)
    assert turn.divergence.remedy.kind == "policy"


@settings(max_examples=20, deadline=None)
@given(conversation=conversations(), text=texts)
def test_a_note_changes_its_neighbour(conversation: tuple[Messages, Messages], text: str) -> None:
    first, _ = conversation
    user = {"role": "user", "content": f"Now: {text}"}
    reminder = {"role": "system", "content": f"Reminder: {text}"}
    earlier = [*first, {"role": "assistant", "content": text}, user, reminder]
    later = [*earlier, {"role": "user", "content": "And then?"}]
    note = f"[System note]\nReminder: {text}\n[/System note]"
    written = [
        [*earlier[:-2], {**user, "content": f"{user['content']}\n\n{note}"}],
        [*earlier[:-1], {"role": "user", "content": f"{note}\n\nAnd then?"}],
    ]
    won = shared(STEADY, earlier, later) - shared(STEADY, *written)
    turn = replayed(STEADY, earlier, later, "note").turns[1]
    parted = turn.divergence
    assert parted is not None
    assert (parted.cause, parted.confirmed) == ("note-neighbour-flip", True)
    assert won in [each.tokens for each in parted.remedies]


@settings(max_examples=20, deadline=None)
@given(conversation=conversations(), text=texts)
def test_a_server_merges_turns(conversation: tuple[Messages, Messages], text: str) -> None:
    first, _ = conversation
    earlier = [*first, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": text}]
    later = [*earlier, {"role": "user", "content": "And then?"}]
    merged = [*earlier[:-1], {"role": "user", "content": f"{text}\n\nAnd then?"}]
    won = shared(STEADY, earlier, later) - shared(STEADY, earlier, merged)
    check(replayed(STEADY, earlier, later, "hoist+merge").turns[1], "role-merged", len(earlier), won)
