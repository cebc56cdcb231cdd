"""Faults planted in every dialect, with and without stored replies, alone and among other conversations.

Each is found and proved, and its remedy, applied to every request or to the template, saves what was said.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import pytest
from planted_dialects import FAULTS, OTHERS, WRITERS, Fault, conversation, replay, request
from tplaudit.probes.caches.stored_reply import Store
from tplaudit.probes.conversation import Dialect, Request
from tplaudit.probes.replay.remedies import with_tried_remedies
from tplaudit.probes.replay.replay_report import PolicyReport, Remedy

#: With and without stored replies, alone and among the requests of other conversations.
WAYS: tuple[tuple[Store, bool], ...] = (
    ("prompt", True),
    ("prompt+output", False),
    ("prompt+output", True),
    ("prompt", False),
)
#: What a dialect's way to the template never lets through: a text that arrives as a list of parts is written
#: like one that does not.
NOT_SHOWN = {
    ("parts", "anthropic-messages"),
    ("parts", "openai-responses"),
}
CASES = [
    (fault, dialect, *way)
    for fault, dialect, way in product(FAULTS, WRITERS, WAYS)
    if FAULTS[fault].only in (None, way[0]) and (fault, dialect) not in NOT_SHOWN
]
#: Every fault in every dialect, in turn in each of the ways.
SAMPLE = [
    (fault, dialect, *WAYS[(number + at) % 2 if FAULTS[fault].only is None else 1 + (number + at) % 2])
    for number, fault in enumerate(FAULTS)
    for at, dialect in enumerate(WRITERS)
    if (fault, dialect) not in NOT_SHOWN
]


def _among_others(dialect: Dialect, pair: list[Request]) -> list[Request]:
    """Put two requests among those of two other conversations, which only grow."""
    one, other = ([request(dialect, conversation(topic), upto) for upto in (1, 3, 5)] for topic in OTHERS)
    return [one[0], pair[0], other[0], one[1], other[1], pair[1], one[2], other[2]]


def _check(fault: Fault, dialect: Dialect, store: Store, crowded: bool) -> None:
    pair = fault.requests(dialect)
    requests = _among_others(dialect, pair) if crowded else pair
    at = requests.index(pair[1])
    run = replay(fault, requests, store)
    report = with_tried_remedies(run, run.report(), most=10).policies[0]
    assert not report.totals.failed
    turn = report.turns[at]
    assert (turn.relation, turn.predecessor) in (
        ("appended", requests.index(pair[0]) + 1),
        ("edited", requests.index(pair[0]) + 1),
    )
    for other in report.turns:
        if other.conversation != turn.conversation and other.divergence:
            # What a template does wrong, it does in every conversation.
            assert other.divergence.cause in (fault.cause, "tokenizer-boundary")
    parted = turn.divergence
    assert parted is not None
    assert (parted.cause, parted.confirmed) == (fault.cause, True), parted.evidence
    assert [link.cause for link in parted.chain] == [fault.cause]
    assert turn.explained == turn.avoidable
    if fault.cause == "tokenizer-boundary":
        assert parted.remedies == ()
        return
    for remedy in parted.remedies:
        assert _left(fault, requests, store, report, remedy, at) == turn.reprefill - remedy.saves, remedy.set
    assert parted.remedy is not None


def _left(
    fault: Fault, requests: list[Request], store: Store, report: PolicyReport, remedy: Remedy, at: int
) -> int | None:
    """Return what a turn prefills with a remedy applied for real."""
    if remedy.kind == "template":
        assert fault.mended is not None
        return replay(fault, requests, store, fault.mended).report().policies[0].turns[at].reprefill
    assert remedy.apply
    tried = next((each for each in report.tried if each.remedy.apply == remedy.apply), None)
    if tried is None:
        assert not remedy.saves
        return report.turns[at].reprefill
    return tried.turns[at].reprefill


@pytest.mark.parametrize(("fault", "dialect", "store", "crowded"), SAMPLE)
def test_a_fault(fault: str, dialect: Dialect, store: Store, crowded: bool) -> None:
    _check(FAULTS[fault], dialect, store, crowded)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "dialect", "store", "crowded"),
    [case for case in CASES if case not in SAMPLE],
)
def test_a_fault_in_every_way(fault: str, dialect: Dialect, store: Store, crowded: bool) -> None:
    _check(FAULTS[fault], dialect, store, crowded)


@pytest.mark.parametrize(("fault", "dialect"), sorted(NOT_SHOWN))
def test_what_never_reaches_the_template_is_no_fault(fault: str, dialect: Dialect) -> None:
    planted = FAULTS[fault]
    run = replay(planted, planted.requests(dialect), "prompt").report().policies[0]
    assert run.turns[1].divergence is None
    assert run.totals.avoidable == 0


@pytest.mark.parametrize("fault", ["reasoning", "strips", "strips-unless-told"])
def test_reasoning_that_a_server_leaves_out_of_responses_is_no_fault(fault: str) -> None:
    planted = replace(FAULTS[fault], policy="mlx-vlm")
    run = replay(planted, planted.requests("openai-responses"), "prompt").report().policies[0]
    assert not run.totals.failed
    assert run.turns[1].divergence is None
    assert run.totals.avoidable == 0


@pytest.mark.parametrize("store", ["prompt", "prompt+output"])
@pytest.mark.parametrize("dialect", WRITERS)
def test_nothing_is_planted(dialect: Dialect, store: Store) -> None:
    requests = _among_others(dialect, Fault("none").requests(dialect))
    report = replay(Fault("none"), requests, store).report().policies[0]
    for turn in report.turns:
        assert turn.error is None
        assert turn.avoidable == turn.explained
        assert turn.divergence is None or turn.divergence.cause == "tokenizer-boundary"


@pytest.mark.parametrize("store", ["prompt", "prompt+output"])
@pytest.mark.parametrize("dialect", WRITERS)
def test_another_conversation_takes_the_room(dialect: Dialect, store: Store) -> None:
    fault = Fault("evicted")
    pair = fault.requests(dialect)
    run = replay(fault, _among_others(dialect, pair), store, capacity=400 << 10)
    report = with_tried_remedies(run, run.report(), most=10).policies[0]
    turn = report.turns[5]
    (loss,) = [each for each in turn.losses if each.cause == "evicted"]
    assert loss.conversation != turn.conversation
    assert loss.tokens == turn.avoidable == turn.explained
    assert loss.remedy is not None and loss.remedy.saves > 0
    (tried,) = [each for each in report.tried if each.remedy.apply == loss.remedy.apply]
    assert tried.turns[5].reprefill == (turn.reprefill or 0) - loss.remedy.saves


@pytest.mark.parametrize("store", ["prompt", "prompt+output"])
@pytest.mark.parametrize("dialect", WRITERS)
def test_a_block_is_not_full(dialect: Dialect, store: Store) -> None:
    fault = Fault("cache-granularity", policy="as-is", block_size=None)
    run = replay(fault, _among_others(dialect, fault.requests(dialect)), store)
    report = with_tried_remedies(run, run.report(), most=10).policies[0]
    turn = report.turns[5]
    (loss,) = turn.losses
    assert loss.cause == "cache-granularity"
    assert turn.avoidable == turn.explained
    if loss.tokens < 16:
        assert loss.remedy is None  # no usual block is as small
        return
    assert loss.remedy is not None
    (tried,) = [each for each in report.tried if each.remedy.apply == loss.remedy.apply]
    assert tried.turns[5].reprefill == (turn.reprefill or 0) - loss.remedy.saves


@pytest.mark.parametrize("crowded", [False, True])
@pytest.mark.parametrize("policy", ["vllm", "llama-cpp"])
@pytest.mark.parametrize("dialect", WRITERS)
def test_a_tool_list_flips_back_and_forth(dialect: Dialect, policy: str, crowded: bool) -> None:
    few, many = conversation(), {**conversation(), "tools": ["tide", "ferry"]}
    requests = [
        request(dialect, many if number % 2 else few, upto) for number, upto in enumerate((1, 3, 5, 7, 9))
    ]
    flips = list(requests)
    if crowded:
        others = [request(dialect, conversation(OTHERS[0]), upto) for upto in (1, 3, 5, 7)]
        requests = [each for pair in zip(flips, others, strict=False) for each in pair] + flips[4:]
    run = replay(Fault("tools-changed", policy=policy, block_size=None), requests, "prompt")
    (report,) = run.report().policies
    turns = [report.turns[requests.index(each)] for each in flips]
    assert turns[0].divergence is None
    for before, turn in pairwise(turns):
        assert (turn.predecessor, turn.changed) == (before.turn, ("tools",))
        assert turn.divergence is not None and turn.since_previous is not None
        assert (turn.divergence.cause, turn.divergence.confirmed) == ("tools-changed", True)
        assert (turn.since_previous.cause, turn.since_previous.confirmed) == ("tools-changed", True)
        assert turn.explained == turn.avoidable
    numbers = tuple(turn.turn for turn in turns[1:])
    (finding,) = [each for each in run.report().findings if each.rule == "tools-come-and-go"]
    assert finding.turns == numbers
    for other in report.turns:
        if other.conversation != turns[0].conversation:
            assert other.divergence is None
