from __future__ import annotations

import re
from typing import Any

from ferry_sessions import model, replayed

Messages = list[dict[str, Any]]

STEADY = (
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor -%}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}"
)


def asked(number: int) -> Messages:
    return [
        message
        for each in range(number)
        for message in (
            {"role": "user", "content": f"Question {each} about the harbour, the tide and the ferry."},
            {"role": "assistant", "content": f"Answer {each}."},
        )
    ][:-1]


def test_the_rest_of_a_block_is_lost() -> None:
    turns = replayed(model(STEADY), [asked(1), asked(2), asked(3)], block_size=100).turns
    for turn in turns[1:]:
        assert turn.divergence is None
        assert turn.depth is not None
        (loss,) = turn.losses
        rest = turn.depth % 100
        assert (loss.cause, loss.tokens) == ("cache-granularity", rest)
        if loss.remedy is not None:
            assert loss.remedy.tokens in (
                turn.depth // 64 * 64 - turn.reused,
                turn.depth // 16 * 16 - turn.reused,
            )
    assert turns[0].losses == ()


def test_what_was_dropped_is_the_evictions() -> None:
    loaded = model(STEADY)
    other: Messages = [
        {"role": "user", "content": "Something else entirely, at some length, about ropes and masts."}
    ]
    run = replayed(
        loaded,
        [asked(3), other, asked(3), asked(4)],
        block_size=8,
        capacity_bytes=8 * 7 * (loaded.bytes_per_token or 0),
    )
    evicted = {turn: loss for turn in run.turns for loss in turn.losses if loss.cause == "evicted"}
    assert evicted
    assert run.totals.causes["evicted"].avoidable == sum(
        min(turn.avoidable or 0, loss.tokens) for turn, loss in evicted.items()
    )
    for turn, loss in evicted.items():
        assert loss.tokens == turn.avoidable
        assert re.search(r"in turn [1-3], by conversation [12]$", loss.evidence)
        assert loss.room == "block" and loss.turn in (1, 2, 3) and loss.conversation in (1, 2)
        assert loss.remedy is not None
    assert sum(total.avoidable for total in run.totals.causes.values()) == run.totals.avoidable
