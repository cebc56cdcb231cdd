"""Counted reuse beside what the server said: each explanation is one that gives its number."""

from __future__ import annotations

import dataclasses

import pytest
from actual_sessions import answered, ferry, less, model, replayed, transcript
from tplaudit.probes.conversation import ActualReuse, Request
from tplaudit.probes.policies.registry import POLICIES, parse_policy
from tplaudit.probes.replay.actual.agreement import agrees, needed
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.replay.replay_report import Agreement, Disagreement

POLICY = "mlx-lm"


def agreement(requests: list[Request], policy: str = POLICY, **more: object) -> Agreement:
    found = replayed(requests, policy, store="prompt+output", **more).agreement
    assert found is not None
    return found


def first(requests: list[Request], policy: str = POLICY, **more: object) -> Disagreement:
    found = agreement(requests, policy, **more).first
    assert found is not None
    return found


def test_a_replay_agrees_with_its_own_counts() -> None:
    requests = answered(ferry(), POLICY, store="prompt+output")
    assert agreement(requests) == Agreement(turns=10, agreeing=10)
    report = replayed(requests, POLICY, store="prompt+output")
    assert [turn.actual and turn.actual.reused for turn in report.turns] == [
        turn.reused for turn in report.turns
    ]


def test_counted_numbers_stay_as_they_are() -> None:
    without = replayed(ferry(), POLICY, store="prompt+output")
    beside = replayed(answered(ferry(), POLICY, less({4}, 7)), POLICY, store="prompt+output")
    assert [dataclasses.replace(turn, actual=None) for turn in beside.turns] == list(without.turns)
    assert beside.totals == without.totals


def test_another_length_of_the_prompt() -> None:
    def longer(turn: int, actual: ActualReuse) -> ActualReuse:
        return dataclasses.replace(actual, prompt_tokens=(actual.prompt_tokens or 0) + 2 * (turn == 3))

    found = first(answered(ferry(), POLICY, longer, store="prompt+output"))
    assert (found.turn, found.kind) == (3, "prompt-length")


def test_replies_that_the_server_stores_and_the_replay_does_not() -> None:
    requests = answered(ferry(), POLICY, store="prompt+output")
    found = replayed(requests, POLICY, store="prompt").agreement
    assert found is not None
    assert found.first is not None
    assert found.first.kind == "store"
    assert "--store prompt+output" in found.first.evidence


def test_a_restart() -> None:
    requests = ferry()
    before = answered(requests[:5], POLICY, store="prompt+output")
    after = answered(requests[5:], POLICY, store="prompt+output")
    found = first([*before, *after])
    assert (found.turn, found.kind, found.actual) == (6, "restart", 0)
    assert "of the 5 turns from here on agree" in found.evidence


def test_an_evicted_predecessor() -> None:
    requests = ferry(4)
    whole = answered(requests, POLICY, store="prompt+output")
    # The last turn of a server that has lost the sequence of the one that this continues.
    lost = answered([*requests[:5], requests[7]], POLICY, store="prompt+output")[-1]
    assert (lost.actual and lost.actual.reused) != (whole[7].actual and whole[7].actual.reused)
    found = first([*whole[:7], lost])
    assert (found.turn, found.kind) == (8, "evicted")
    assert "without what turn 6 stored" in found.evidence


def test_a_conversation_in_another_slot() -> None:
    requests = ferry(4)
    whole = answered(requests, POLICY, store="prompt+output")
    alone = answered([*requests[:7:2], requests[7]], POLICY, store="prompt+output")[-1]
    found = first([*whole[:7], alone])
    assert (found.turn, found.kind) == (8, "other-slot")


def test_a_server_that_has_seen_the_session_before() -> None:
    twice = answered([*ferry(3), *ferry(3)], POLICY, store="prompt+output")
    found = first(twice[6:])
    assert (found.turn, found.kind) == (1, "warm")


def test_what_nothing_explains_is_said_to_be_unexplained() -> None:
    found = first(answered(ferry(), POLICY, less({8}, 3), store="prompt+output"))
    assert (found.turn, found.kind) == (8, "unexplained")


def test_another_policy_of_the_replay_that_agrees_is_named() -> None:
    run = Replay(
        transcript(answered(ferry(edited=4), "llama-cpp", store="prompt+output")),
        model(),
        [parse_policy("vllm"), parse_policy("llama-cpp")],
        store="prompt+output",
        causes=False,
    )
    for _ in run.turns():
        pass
    one, other = (policy.agreement for policy in run.report().policies)
    assert one is not None
    assert one.first is not None
    assert one.first.kind == "other-policy"
    assert one.first.evidence == "under llama-cpp 10 of 10 turns agree"
    assert other is not None
    assert other.agreeing == 10


def test_a_usage_that_counts_a_whole_repeat_agrees_where_the_server_is_known_for_it() -> None:
    told = [
        name for name, kind in POLICIES.items() if kind.reuse_reports and kind.reuse_reports.repeat_is_whole
    ]
    assert told
    for name in POLICIES:
        assert agrees(name, 100, 99, ActualReuse(100, 100, "usage")) is (name in told)
        assert not agrees(name, 100, 99, ActualReuse(100, 100, "log"))
        assert not agrees(name, 100, 98, ActualReuse(100, 100, "usage"))


def test_whole_repeats_are_counted() -> None:
    requests = ferry(3)
    repeated = [*requests, requests[-1]]

    def whole(turn: int, actual: ActualReuse) -> ActualReuse:
        return dataclasses.replace(actual, reused=actual.prompt_tokens or 0) if turn == 7 else actual

    found = agreement(answered(repeated, "rapid-mlx", whole, store="prompt+output"), "rapid-mlx")
    assert (found.turns, found.agreeing, found.whole_repeats, found.first) == (7, 7, 1, None)


@pytest.mark.parametrize("name", [name for name, kind in POLICIES.items() if kind.reuse_reports])
def test_what_a_server_needs_is_said_where_it_answered_without_a_number(name: str) -> None:
    reports = POLICIES[name].reuse_reports
    assert reports is not None
    said = needed(name, ferry(1))
    assert said
    assert reports.flag in said
    assert ("--server-log" in said) is (reports.log or not reports.answers)
    assert needed(name, [request.replace(answered=False) for request in ferry(1)]) is None


def test_a_stream_has_to_be_asked_for_its_usage() -> None:
    stream = [request.replace(fields={"stream": True}) for request in ferry(1)]
    asked = [
        request.replace(fields={"stream": True, "stream_options": {"include_usage": True}})
        for request in ferry(1)
    ]
    assert "stream_options.include_usage" in str(needed("vllm", stream))
    assert "stream_options.include_usage" not in str(needed("vllm", asked))


def test_without_numbers_and_answers_nothing_is_said() -> None:
    requests = [request.replace(answered=False) for request in ferry(2)]
    assert replayed(requests, POLICY).agreement is None
    assert replayed(ferry(2), "as-is").agreement is None
