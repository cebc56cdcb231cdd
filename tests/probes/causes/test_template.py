"""What a template wrote otherwise, planted in random conversations."""

from __future__ import annotations

from datetime import datetime

from hypothesis import given, settings
from planted import (
    CLOCK,
    COLLECTS,
    MARKS_LAST,
    MODELS,
    STEADY,
    STRIPS,
    STRIPS_UNLESS_TOLD,
    Messages,
    check,
    conversations,
    model,
    places,
    replayed,
    request,
    shared,
    texts,
)


@settings(max_examples=20, deadline=None)
@given(conversation=conversations(), text=texts)
def test_a_template_collects_system_turns(conversation: tuple[Messages, Messages], text: str) -> None:
    first, second = conversation
    at = len(first)
    later = [*second[:at], {"role": "system", "content": f"Reminder: {text}"}, *second[at:]]
    won = shared(COLLECTS, first, second) - shared(COLLECTS, first, later)
    check(replayed(COLLECTS, first, later).turns[1], "template-moved-system", at, won)


def at_a_user_turn(conversation: tuple[Messages, Messages]) -> tuple[Messages, Messages, int]:
    """Let the second request bring another user turn, and tell where the reasoning before it begins."""
    first, _ = conversation
    start = max(places(first, lambda m: m["role"] == "user"))
    first = first if first[-1]["role"] == "tool" else conversation[1][: start + 3]
    second = [*first, {"role": "assistant", "content": "Aye."}, {"role": "user", "content": "Go on."}]
    return (
        first,
        second,
        next(index for index in range(start, len(first)) if first[index].get("reasoning_content")),
    )


@settings(max_examples=20, deadline=None)
@given(conversation=conversations())
def test_a_template_strips_reasoning_unless_told(conversation: tuple[Messages, Messages]) -> None:
    first, second, index = at_a_user_turn(conversation)
    kept = shared(STRIPS_UNLESS_TOLD, first, second, kwargs={"preserve_thinking": True})
    won = kept - shared(STRIPS_UNLESS_TOLD, first, second)
    turn = replayed(STRIPS_UNLESS_TOLD, first, second).turns[1]
    check(turn, "thinking-stripped", index, won)
    assert turn.divergence.remedy.set == "preserve_thinking=true"
    assert turn.divergence.remedy.paste is not None


@settings(max_examples=20, deadline=None)
@given(conversation=conversations())
def test_a_template_strips_reasoning_whatever_it_is_told(conversation: tuple[Messages, Messages]) -> None:
    first, second, index = at_a_user_turn(conversation)
    won = shared(STRIPS, first, second[:-1]) - shared(STRIPS, first, second)
    turn = replayed(STRIPS, first, second).turns[1]
    check(turn, "thinking-stripped", index, won)
    assert turn.divergence.remedy.kind == "template"


@settings(max_examples=20, deadline=None)
@given(conversation=conversations())
def test_a_template_writes_the_last_message_otherwise(conversation: tuple[Messages, Messages]) -> None:
    first, second = conversation
    mended = MODELS.setdefault(STEADY, model(STEADY))
    left = len(mended.tokenizer.encode(mended.template.render(second))) - shared(STEADY, first, second)
    won = shared(STEADY, first, second) - shared(MARKS_LAST, first, second)
    turn = replayed(MARKS_LAST, first, second).turns[1]
    parted = turn.divergence
    assert parted is not None
    assert (parted.cause, parted.confirmed) == ("position-dependent-markup", True)
    assert parted.was is not None
    assert parted.remedy is not None
    assert parted.remedy.tokens == won
    assert parted.remedy.saves == turn.reprefill - left


@settings(max_examples=10, deadline=None)
@given(conversation=conversations())
def test_the_template_prints_the_time(conversation: tuple[Messages, Messages]) -> None:
    first, second = conversation
    times = [datetime(2026, 11, 30, 9, 10), datetime(2026, 11, 30, 9, 42)]
    run = replayed(CLOCK, request(first, now=times[0]), request(second, now=times[1]))
    won = shared(CLOCK, first, second, now=times[0]) - run.turns[1].divergence.tokens
    check(run.turns[1], "template-clock", None, won)
    assert run.turns[1].divergence.line == 1
