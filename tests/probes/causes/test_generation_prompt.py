from __future__ import annotations

from hypothesis import given, settings
from planted import (
    MODELS,
    OPENS_THINKING,
    Messages,
    check,
    conversations,
    model,
    planted,
    replayed,
    shared,
)


@settings(max_examples=20, deadline=None)
@given(conversation=conversations())
def test_the_generation_prompt_is_not_in_history(conversation: tuple[Messages, Messages]) -> None:
    first, second = conversation
    second = planted(second, len(first), reasoning_content=None)
    loaded = MODELS.setdefault(OPENS_THINKING, model(OPENS_THINKING))
    won = len(loaded.tokenizer.encode(loaded.template.render(first))) - shared(OPENS_THINKING, first, second)
    turn = replayed(OPENS_THINKING, first, second).turns[1]
    check(turn, "generation-prompt-mismatch", len(first), won)
    assert turn.since_previous.body_preserved
    assert turn.since_previous.message is None
