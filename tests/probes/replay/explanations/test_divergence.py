from __future__ import annotations

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


def test_the_predecessor_is_compared_with_and_the_closest_prompt_stands_beside() -> None:
    branch = [*asked(2), {"role": "assistant", "content": "A branch."}, {"role": "user", "content": "On."}]
    main = [*asked(2), {"role": "assistant", "content": "Another."}, {"role": "user", "content": "And on."}]
    rewritten = [{**main[0], "content": "[cleared]"}, *main[1:]]
    turns = replayed(model(STEADY), [branch, asked(1), rewritten, main], block_size=1).turns
    assert [turn.predecessor for turn in turns] == [None, None, None, 2]
    assert turns[3].relation == "appended" and turns[3].divergence is None
    assert turns[3].closest is not None and turns[3].closest.turn == 1
    assert turns[3].closest.tokens == turns[3].depth
