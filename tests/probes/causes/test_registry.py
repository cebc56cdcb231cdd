"""Several causes of one divergence, in order; and none where nothing was done."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from planted import (
    COLLECTS,
    STEADY,
    Messages,
    call_with,
    conversations,
    has_call,
    places,
    planted,
    replayed,
    shared,
)


@settings(max_examples=30, deadline=None)
@given(conversation=conversations(shortest=4), data=st.data())
def test_two_faults_are_named_in_order(conversation: tuple[Messages, Messages], data: st.DataObject) -> None:
    first, second = conversation
    reordered = data.draw(st.sampled_from(places(first, has_call)))
    rewritten = data.draw(st.sampled_from(places(first[:reordered], lambda m: m["role"] in ("user", "tool"))))
    one = planted(second, rewritten, content="[cleared]")
    arguments = second[reordered]["tool_calls"][0]["function"]["arguments"]
    both = planted(one, reordered, tool_calls=call_with(second[reordered], dict(reversed(arguments.items()))))
    other = planted(second, reordered, tool_calls=both[reordered]["tool_calls"])
    chain = replayed(STEADY, first, both).turns[1].divergence.chain
    assert [link.cause for link in chain] == ["history-rewritten", "tool-arguments-reserialised"]
    assert [link.message.index for link in chain] == [rewritten, reordered]
    depths = [shared(STEADY, first, each) for each in (both, other, second)]
    assert [link.tokens for link in chain] == depths[:2]
    assert [link.remedy.tokens for link in chain] == [depths[1] - depths[0], depths[2] - depths[1]]


@settings(max_examples=20, deadline=None)
@given(conversation=conversations(shortest=4))
def test_a_volatile_line_behind_a_hoist(conversation: tuple[Messages, Messages]) -> None:
    first, second = conversation
    at = len(first)
    stamped = planted(second, 0, content=second[0]["content"].replace("cch=", "cch=1"))
    later = [*stamped[:at], {"role": "system", "content": "Reminder: reef"}]
    chain = replayed(COLLECTS, first, later).turns[1].divergence.chain
    assert [link.cause for link in chain] == ["volatile-text", "template-moved-system"]


@settings(max_examples=15, deadline=None)
@given(conversation=conversations())
def test_nothing_is_planted(conversation: tuple[Messages, Messages]) -> None:
    first, second = conversation
    second = planted(second, len(first), reasoning_content=None)
    run = replayed(STEADY, first, second)
    assert run.turns[1].divergence is None
    assert run.turns[1].since_previous.cause is None
    assert run.totals.causes == {}
