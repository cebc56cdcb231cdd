"""Conversations in a replay: nobody's numbers depend on what others do, but for what they evict."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tplaudit.probes.conversation import Message, Request, Transcript
from tplaudit.probes.models.model import ReplayModel, load_model
from tplaudit.probes.policies.registry import POLICIES, parse_policy
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.replay.replay_report import PolicyReport, ReplayReport
from tplaudit.probes.transcripts.reader import open_transcript

from tests.recordings import SESSIONS

IN_PLACE = "fixtures/templates/in-place.jinja"


def _replayed(
    requests: list[Request], policy: str, block_size: int | None = 8, causes: bool = False, **more: Any
) -> PolicyReport:
    run = Replay(
        Transcript("test", "openai-chat", lambda: iter(requests)),
        load_model(str(SESSIONS.parents[2] / IN_PLACE), tokenizer="characters"),
        [parse_policy(policy)],
        block_size=block_size,
        causes=causes,
        **more,
    )
    for _ in run.turns():
        pass
    return run.report().policies[0]


def _request(messages: list[dict[str, Any]], **more: Any) -> Request:
    return Request(tuple(Message(message, at) for at, message in enumerate(messages)), **more)


def _histories(steps: list[int]) -> list[list[Request]]:
    """Conversations that begin with the same system text and only grow."""
    found = []
    for number, count in enumerate(steps):
        messages = [
            {"role": "system", "content": "You look into the parts of a small program."},
            {"role": "user", "content": f"Look into part {number}, please."},
        ]
        requests = [_request(list(messages))]
        for step in range(count):
            reply = f"Part {number} has {step} faults so far."
            messages += [
                {"role": "assistant", "content": reply},
                {"role": "user", "content": f"Go on with {step}."},
            ]
            requests.append(_request(list(messages)))
        found.append(requests)
    return found


#: One policy for each cache of a server.
CACHES = (
    "omlx",
    "rapid-mlx",
    "vllm-mlx",
    "mlx-lm",
    "llama-cpp",
    "vllm",
    "sglang",
    "ollama",
    "mlx-vlm",
    "mtplx",
)


@pytest.mark.parametrize("policy", [name for name in CACHES if name in POLICIES])
@settings(max_examples=12, deadline=None)
@given(steps=st.lists(st.integers(0, 4), min_size=2, max_size=4), data=st.data())
def test_interleaving_adds_nothing_but_evictions(policy: str, steps: list[int], data: st.DataObject) -> None:
    histories = _histories(steps)
    order = data.draw(st.permutations([at for at, requests in enumerate(histories) for _ in requests]))
    queues = [list(requests) for requests in histories]
    mixed = [queues[at].pop(0) for at in order]
    together = _replayed(mixed, policy, None)
    assert sum(each.totals.avoidable for each in together.conversations) == together.totals.avoidable
    first = list(dict.fromkeys(order))
    for conversation, number in zip(together.conversations, first, strict=True):
        alone = _replayed(histories[number], policy, None)
        turns = [turn for turn in together.turns if turn.conversation == conversation.conversation]
        for one, other in zip(turns, alone.turns, strict=True):
            assert one.prompt_tokens == other.prompt_tokens
            assert one.reprefill == (one.unavoidable or 0) + (one.avoidable or 0)
            evicted = sum(loss.tokens for loss in one.losses if loss.cause == "evicted")
            assert (one.avoidable or 0) - evicted <= (other.avoidable or 0)
            assert (one.avoidable or 0) <= (other.avoidable or 0) + evicted
            for loss in one.losses:
                if loss.cause == "evicted":
                    assert loss.conversation != one.conversation
            assert (one.divergence is None) == (other.divergence is None)


def test_llama_cpps_slot_is_overwritten_by_another_conversation() -> None:
    first, second = _histories([1, 0])
    run = _replayed([first[0], second[0], first[1]], "llama-cpp", None)
    loss = next(loss for loss in run.turns[2].losses if loss.cause == "evicted")
    assert (loss.room, loss.turn, loss.conversation) == ("slot", 2, 2)
    assert loss.tokens == run.turns[2].avoidable
    assert run.totals.causes["evicted"].avoidable == run.totals.avoidable


def test_a_conversation_that_begins_wastes_nothing() -> None:
    first, second = _histories([0, 0])
    turns = _replayed([first[0], second[0]], "as-is").turns
    assert [turn.relation for turn in turns] == ["begins", "begins"]
    assert all(turn.unavoidable == turn.reprefill and not turn.avoidable for turn in turns)
    assert turns[1].divergence is turns[1].since_previous is None
    assert turns[1].depth and turns[1].closest is not None


def test_what_an_edit_costs_is_all_but_what_is_new() -> None:
    start = _histories([3])[0]
    messages = [dict(message.data) for message in start[2].messages]
    messages[1] = {"role": "user", "content": "[cleared]"}
    new = [{"role": "assistant", "content": "It has none."}, {"role": "user", "content": "Good."}]
    turn = _replayed([*start[:3], _request([*messages, *new])], "as-is", 1).turns[3]
    text = load_model(str(SESSIONS.parents[2] / IN_PLACE), tokenizer="characters").template
    kept = text.render(messages, add_generation_prompt=False)
    whole = text.render([*messages, *new], add_generation_prompt=True)
    # "[cleared]" is new too: the predecessor did not have it.
    assert turn.relation == "edited"
    assert turn.unavoidable == len(whole) - len(kept) + len("[cleared]")
    assert turn.avoidable == (turn.reprefill or 0) - turn.unavoidable


def test_requests_arrive_in_the_order_of_their_times() -> None:
    from datetime import UTC, datetime

    first, second = _histories([1, 1])
    at = [datetime(2026, 1, 1, 12, minute, tzinfo=UTC) for minute in range(4)]
    # Written as they ended: the second conversation's first request took longest.
    logged = [
        first[0].replace(sent=at[0]),
        first[1].replace(sent=at[2]),
        second[0].replace(sent=at[1]),
        second[1].replace(sent=at[3]),
    ]
    turns = _replayed(logged, "llama-cpp", None).turns
    assert [turn.turn for turn in turns] == [1, 2, 3, 4]
    assert [turn.predecessor for turn in turns] == [None, 1, None, 3]
    lost = [loss.turn for turn in turns for loss in turn.losses if loss.cause == "evicted"]
    assert lost and set(lost) <= {2, 3}


def test_interleaved_is_three_conversations_without_a_cause() -> None:
    model = load_model(str(SESSIONS.parents[2] / IN_PLACE), tokenizer="characters")
    report = _session("interleave-min", "as-is", model=model, block_size=1)
    run = report.policies[0]
    assert [each.turns for each in run.conversations] == [(1, 4), (2,), (3,)]
    assert run.totals.avoidable == 0 and not run.totals.causes and not report.findings


@pytest.mark.parametrize("name", ["crash-min", "rewind-crash"])
@pytest.mark.parametrize("policy", ["omlx", "rapid-mlx", "vllm-mlx", "vllm", "sglang"])
def test_requests_that_only_look_alike(name: str, policy: str) -> None:
    run = _session(name, policy).policies[0]
    assert len(run.turns) == 2
    assert [turn.relation for turn in run.turns] == ["begins", "begins"]


def test_a_sub_agent_is_a_conversation_of_its_own() -> None:
    report = _session("subagent", "omlx")
    assert len(report.policies[0].conversations) > 1
    assert all(finding.rule != "client-rewrites-history" for finding in report.findings)


@pytest.mark.parametrize("name", ["title_request", "independent"])
def test_first_requests_are_unavoidable(name: str) -> None:
    for turn in _session(name, "llama-cpp").policies[0].turns:
        if turn.relation == "begins":
            assert turn.unavoidable == turn.reprefill
            assert turn.divergence is None
        elif turn.losses:
            assert all(loss.cause == "evicted" for loss in turn.losses)


def _session(
    name: str, policy: str, *, model: ReplayModel | None = None, block_size: int | None = None
) -> ReplayReport:
    run = Replay(
        open_transcript(SESSIONS / f"{name}.jsonl"),
        model or load_model(None),
        [parse_policy(policy)],
        block_size=block_size,
    )
    for _ in run.turns():
        pass
    return run.report()


def test_json_names_conversations_and_predecessors() -> None:
    from tplaudit.probes.replay.replay_report import to_json

    report = _session("title_request", "as-is")
    value = json.loads(json.dumps(to_json(report)))
    assert value["schema"] == "tplaudit.replay/2"
    policy = value["policies"][0]
    assert [(turn["conversation"], turn["predecessor"], turn["relation"]) for turn in policy["turns"]] == [
        (1, None, "begins"),
        (2, None, "begins"),
        (1, 1, "appended"),
    ]
    assert [(each["conversation"], each["name"], each["turns"]) for each in policy["conversations"]] == [
        (1, "main", [1, 3]),
        (2, "title", [2]),
    ]
