"""Replays with every kind of state that mlx-lm's models keep: each server's cache, computed and counted."""

from __future__ import annotations

import json
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
from tplaudit.fixtures import template, transcript
from tplaudit.probes.engine.mlx_engine import load_engine
from tplaudit.probes.errors import InputError
from tplaudit.probes.models.model import load_model
from tplaudit.probes.policies.registry import POLICIES, parse_policy
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.replay.totals import totals
from tplaudit.probes.transcripts.reader import open_transcript

TINY = runpy.run_path(str(Path(__file__).parents[1] / "tiny_models.py"))
CONFIGS, KINDS, WINDOW = TINY["CONFIGS"], TINY["KINDS"], TINY["WINDOW"]
VOCABULARY = 4096  # that of the bundled tokenizer
# One policy for each cache, and those whose caches give something back of each kind of state: tails, ends of
# prompts, checkpoints.
EVERY = tuple({kind.cache: name for name, kind in reversed(POLICIES.items())}.values())
GIVING = ("omlx", "rapid-mlx", "llama-cpp", "sglang", "mlx-lm")


def chosen(*fast):
    """All families; those that are not named run with the slow tests."""
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in CONFIGS]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return a function that gives a family's model and engine, made once."""
    made = {}

    def get(name):
        if name not in made:
            directory = tmp_path_factory.mktemp(name)
            config = TINY["config_of"](name, VOCABULARY)
            (directory / "config.json").write_text(json.dumps(config))
            loaded = replace(load_model(None, template=str(template("in-place"))), directory=directory)
            made[name] = loaded, TINY["build"](name, VOCABULARY)
        return made[name]

    return get


def replayed(model, policies, **options):
    run = Replay(open_transcript(transcript("chat")), model, policies, causes=False, **options)
    for _ in run.turns():
        pass
    return run.report()


def counted_alike(computed, counted, engine):
    """Whether both engines tell the same of every turn, and of the cache what config.json tells."""
    for one, other in zip(computed.policies, counted.policies, strict=True):
        assert all(turn.error is None and turn.cost is not None for turn in one.turns)
        assert tuple(replace(turn, cost=None) for turn in one.turns) == other.turns
        assert one.server_cache.layers == engine.model_kind
        assert one.server_cache.bytes_per_token == engine.bytes_per_token
        known = replace(
            one.server_cache,
            layers=other.server_cache.layers,
            bytes_per_token=other.server_cache.bytes_per_token,
        )
        assert known == other.server_cache
    return True


@pytest.mark.parametrize(
    ("name", "names"),
    [
        *((name, GIVING) for name in ("qwen3_5", "gemma3_text")),
        *(pytest.param(name, EVERY, marks=pytest.mark.slow) for name in CONFIGS),
    ],
    ids=lambda given: given if isinstance(given, str) else f"{len(given)} caches",
)
def test_each_servers_cache_counts_what_it_computes(models, name, names):
    loaded, engine = models(name)
    assert engine.model_kind == KINDS[name]
    # Nothing in config.json tells of quantised K and V.
    assert loaded.state_size.kind == ("plain" if name == "kv_bits" else KINDS[name])
    policies = [parse_policy(policy) for policy in names]
    computed = replayed(loaded, policies, engine=engine, verify=True)
    counted = replayed(loaded, policies)
    assert computed.verify is not None
    assert computed.verify.passed, computed.verify
    assert computed.verify.checked_turns == 7 * len(policies)
    assert counted_alike(computed, counted, engine)
    for one in computed.policies:
        assert totals(one.turns).reused <= totals(one.turns).prompt_tokens
        assert one.totals.reused > 0 or one.policy not in GIVING


@pytest.mark.parametrize("name", chosen("gemma3_text"))
def test_replies_are_stored_as_they_are_counted(models, name):
    loaded, engine = models(name)
    policies = [parse_policy(policy) for policy in ("omlx", "rapid-mlx", "vllm")]
    computed = replayed(loaded, policies, engine=engine, verify=True, store="prompt+output")
    counted = replayed(loaded, policies, store="prompt+output")
    assert computed.verify.passed, computed.verify
    assert counted_alike(computed, counted, engine)
    for policy in computed.policies:
        for turn in policy.turns:
            assert (turn.cost.measured.output > 0) is bool(turn.reply and turn.reply.tokens)
    assert any(turn.reply and turn.reply.tokens for turn in computed.policies[-1].turns)


@pytest.mark.slow
@pytest.mark.parametrize("name", chosen("qwen3_5", "falcon_h1", "llama4"))
def test_small_blocks_and_a_small_cache(models, name):
    # Reuse, eviction and branches, since the hoist makes prompts part.
    loaded, engine = models(name)
    policies = [parse_policy(policy) for policy in ("as-is", "hoist")]
    free = replayed(loaded, policies, engine=engine, block_size=32, store="prompt+output")
    room = free.policies[0].cache.bytes // 3
    tight = replayed(
        loaded,
        policies,
        engine=engine,
        verify=True,
        block_size=32,
        capacity_bytes=room,
        store="prompt+output",
    )
    assert tight.verify.passed, tight.verify
    for one, other in zip(tight.policies, free.policies, strict=True):
        assert 0 < one.cache.bytes <= room
        assert one.cache.evicted_blocks > 0 or one.totals.reused < other.totals.reused
        assert 0 < one.totals.reused <= other.totals.reused
    known = loaded.state_size
    assert (known.bytes_per_token is None) is (known.bytes_per_snapshot is None) or name == "deepseek_v32"
    if known.sizes == engine.layout.sizes:  # nothing in config.json tells of quantised K and V
        counted = replayed(loaded, policies, block_size=32, capacity_bytes=room, store="prompt+output")
        assert counted_alike(tight, counted, engine)


def limits(capacity, size, *fast):
    """One case of the next test; those that do not name policies run with the slow tests."""
    slow = pytest.mark.slow
    return pytest.param(capacity, size, fast or EVERY, marks=() if fast else slow, id=f"{capacity} by {size}")


@pytest.fixture(scope="module", params=["qwen3_5", "gemma3_text", "bundled:hybrid", "bundled:sliding-window"])
def computing(request, models):
    if not request.param.startswith("bundled"):
        return models(request.param)
    loaded = load_model(request.param, template=str(template("in-place")))
    return loaded, load_engine(loaded)


@pytest.mark.parametrize(
    ("capacity", "size", "names"),
    [
        limits(300_000, None, *GIVING),
        *(limits(limit, size) for limit in (None, 300_000, 10**6, 3 * 10**6) for size in (None, 17, 100)),
    ],
)
@pytest.mark.parametrize("store", ["prompt", "prompt+output"])
def test_bytes_are_counted_as_they_are_computed(computing, capacity, size, names, store):
    loaded, engine = computing
    # With blocks of a given size all policies have the same cache.
    policies = [parse_policy(name) for name in (("as-is", "hoist") if size else names)]
    options = {"capacity_bytes": capacity, "block_size": size, "store": store}
    computed = replayed(loaded, policies, engine=engine, **options)
    counted = replayed(loaded, policies, **options)
    assert counted_alike(computed, counted, engine)
    for one, other in zip(computed.policies, counted.policies, strict=True):
        assert one.cache == other.cache
    assert any(one.cache.bytes for one in computed.policies)


@pytest.mark.parametrize("layers", ["bundled", "bundled:hybrid", "bundled:sliding-window"])
@pytest.mark.parametrize("store", ["prompt", "prompt+output"])
def test_what_an_append_only_session_prefills_is_unavoidable(layers, store):
    loaded = load_model(layers, template=str(template("in-place")))
    policies = [parse_policy(name) for name in GIVING]
    run = Replay(open_transcript(transcript("codex")), loaded, policies, causes=False, store=store)
    turns = [turn for each in run.turns() for turn in each]
    checked = 0
    for turn in turns:
        # Where the last sequence is whole in the prompt, the rule gives what the cache gave.
        if turn.divergence is None and turn.since_previous and turn.since_previous.body_preserved:
            assert turn.avoidable == 0
            assert turn.unavoidable == turn.reprefill, turn
            checked += 1
    assert checked > 2 * len(policies)


def test_a_limit_holds_for_snapshots_too(models):
    loaded, _ = models("qwen3_5")
    policy = parse_policy("omlx")
    free = replayed(loaded, [policy]).policies[0]
    tight = replayed(loaded, [policy], capacity_bytes=free.cache.bytes // 3).policies[0]
    assert 0 < tight.cache.bytes <= free.cache.bytes // 3
    assert tight.totals.reused < free.totals.reused


def test_a_model_whose_state_cannot_be_restored_is_counted(monkeypatch):
    from tplaudit.probes.engine.mlx_model import load_mlx

    load_mlx()
    from mlx_lm.models import qwen3
    from mlx_lm.models.cache import RotatingKVCache

    monkeypatch.setattr(
        qwen3.Model, "make_cache", lambda self: [RotatingKVCache(64, keep=4)] * 2, raising=False
    )
    model = load_model(None, template=str(template("in-place")))
    with pytest.raises(InputError) as caught:
        load_engine(model)
    said = str(caught.value)
    assert "cannot be restored exactly: RotatingKVCache keeps its first 4 tokens" in said
    assert "use --engine tokens" in said and str(model.directory) in said
    assert replayed(model, [parse_policy("as-is")]).policies[0].totals.reused > 0
