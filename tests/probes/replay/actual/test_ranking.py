"""`--policy auto`: the server whose numbers they are is found, or said not to be there."""

from __future__ import annotations

import dataclasses

import pytest
from actual_sessions import answered, ferry, model, replayed
from tplaudit.probes.caches.registry import block_sizes, server_cache
from tplaudit.probes.conversation import ActualReuse, Request
from tplaudit.probes.errors import UsageError
from tplaudit.probes.models.model import ReplayModel
from tplaudit.probes.policies.registry import POLICIES, parse_policy
from tplaudit.probes.replay.actual.log_lines import LogEntry
from tplaudit.probes.replay.actual.ranking import NEEDED, RankedSession, check_actual, ranked
from tplaudit.probes.replay.actual.server_log import ServerLog


def session(requests: list[Request], log: ServerLog | None = None) -> RankedSession:
    state = model().state_size
    return RankedSession(dict(enumerate(requests, 1)), model(), state.kind, state.sizes, log=log)


@pytest.mark.parametrize(
    ("policy", "store", "blocks"),
    [
        ("omlx", "prompt+output", 128),
        ("vllm", "prompt+output", 64),
        ("rapid-mlx", "prompt+output", None),
        ("mlx-lm", "prompt", None),
        ("mtplx:version=2.11", "prompt+output", None),
        ("vllm-mlx:engine=batched", "prompt+output", None),
        ("llama-cpp:slots=1", "prompt+output", None),
    ],
)
def test_the_server_is_first_or_tied_for_it(policy: str, store: str, blocks: int | None) -> None:
    said = answered(ferry(4, edited=3), policy, store=store, block_size=blocks)
    found = ranked(session(said))
    assert found.fits
    wanted = f"--policy {policy} --store {store}" + (f" --block-size {blocks}" if blocks else "")
    assert wanted in found.tied
    best = found.candidates[0]
    assert (best.agreeing, best.of, best.difference) == (8, 8, 0)
    assert best.turns == tuple(range(1, 9))
    assert best.described == found.tied[0]


def test_what_a_session_cannot_tell_apart_is_tied() -> None:
    once = ferry(1)[:1]
    found = ranked(session(answered(once, "mlx-lm", store="prompt")), store="prompt")
    assert {"--policy mlx-lm --store prompt", "--policy llama-cpp --store prompt"} <= set(found.tied)


def test_nothing_fits_a_server_with_a_rule_that_no_policy_has() -> None:
    def other(turn: int, actual: ActualReuse) -> ActualReuse:
        return dataclasses.replace(actual, reused=actual.reused - actual.reused // 7)

    found = ranked(session(answered(ferry(4, edited=3), "llama-cpp", other, store="prompt+output")))
    assert not found.fits
    assert found.candidates[0].agreeing < NEEDED * found.candidates[0].of


def test_turns_on_which_nothing_is_reused_do_not_make_it_fit() -> None:
    """Most rules agree that a first request reuses nothing."""

    def other(turn: int, actual: ActualReuse) -> ActualReuse:
        return dataclasses.replace(actual, reused=max(0, actual.reused - 5))

    unlike = [
        request.replace(messages=(request.messages[0].replace(content=f"{at} " * 40), *request.messages[1:]))
        for at, request in enumerate(ferry(12))
    ]
    said = answered([*unlike, unlike[-1]], "vllm", other, store="prompt", block_size=64)
    assert [request.actual.reused > 0 for request in said if request.actual] == [False] * 24 + [True]
    found = ranked(session(said), store="prompt", block_size=64)
    assert found.candidates[0].agreeing >= NEEDED * found.candidates[0].of
    assert not found.fits


def test_blocks_and_store_that_are_given_are_not_tried_otherwise() -> None:
    said = answered(ferry(2), "vllm", store="prompt", block_size=32)
    found = ranked(session(said), store="prompt", block_size=32)
    assert {each.store for each in found.candidates} == {"prompt"}
    assert {each.block_size for each in found.candidates} == {32}


def test_a_log_is_enough() -> None:
    requests = ferry(3, edited=2)
    turns = replayed(requests, "llama-cpp", store="prompt+output").turns
    entries = tuple(LogEntry((turn.turn,), turn.prompt_tokens, turn.reused) for turn in turns)
    log = ServerLog("server.log", entries)
    check_actual(session(requests, log))
    found = ranked(session(requests, log), store="prompt+output")
    assert "--policy llama-cpp --store prompt+output" in found.tied


def test_without_numbers_it_says_what_it_needs() -> None:
    with pytest.raises(UsageError, match="--server-log") as refused:
        check_actual(session(ferry(2)))
    flags = [kind.reuse_reports.flag for kind in POLICIES.values() if kind.reuse_reports]
    assert all(flag in str(refused.value) for flag in flags)


def test_blocks_of_hybrid_models_are_those_of_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's depend on the size of the model's states, which only config.json tells."""
    large = dataclasses.replace(model().state_size, kind="hybrid", aligned_block=112)
    monkeypatch.setattr(ReplayModel, "state_size", large)
    said = answered(ferry(4, edited=3), "vllm", store="prompt")
    assert {request.actual.reused % 112 for request in said if request.actual} == {0}
    assert any(request.actual and request.actual.reused for request in said)
    assert "--policy vllm --store prompt" in ranked(session(said), store="prompt").tied


@pytest.mark.parametrize("name", [name for name, kind in POLICIES.items() if not kind.generic])
def test_block_sizes_are_those_of_caches_with_blocks(name: str) -> None:
    """A server's own cache takes each of them, under its own rule."""
    policy = parse_policy(name)
    own = server_cache(policy)
    sizes = block_sizes(policy)
    assert bool(sizes) == (own.block_size > 1)
    for size in sizes:
        cache = server_cache(policy, block_size=size)
        assert cache.block_size == size
        whole, two = cache.reusable(2 * size, 2 * size), 2 * own.block_size
        assert (whole == size) == (own.reusable(two, two) == own.block_size)
