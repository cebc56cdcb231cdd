"""Replays with layers that cannot be cut: each server's cache, computed and counted."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tplaudit.fixtures import DEFAULT_MODEL, template, transcript
from tplaudit.probes.models import load_model
from tplaudit.probes.policies import POLICIES, parse_policy
from tplaudit.probes.replay import Replay
from tplaudit.probes.totals import totals
from tplaudit.probes.transcripts import open_transcript

LINEAR = {
    "model_type": "qwen3_5",
    "full_attention_interval": 2,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
SLIDING = {"model_type": "gemma3_text", "sliding_window": 64, "sliding_window_pattern": 2}
# One policy for each cache.
POLICY_OF = {kind.cache: name for name, kind in reversed(POLICIES.items())}


@pytest.fixture(scope="module", params=["hybrid", "rotating:64"])
def model(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("model")
    config = json.loads((DEFAULT_MODEL / "config.json").read_text())
    wanted = LINEAR if request.param == "hybrid" else SLIDING
    layers = {"num_hidden_layers": 2, "layer_types": None}
    (directory / "config.json").write_text(json.dumps(config | layers | wanted))
    made = replace(load_model(None, template=str(template("in-place"))), directory=directory)
    assert made.footprint.kind == request.param
    return made, made.load_engine()


def replayed(model, policies, **options):
    run = Replay(open_transcript(transcript("chat")), model, policies, causes=False, **options)
    for _ in run.turns():
        pass
    return run.report()


def test_each_servers_cache_counts_what_it_computes(model):
    loaded, engine = model
    policies = [parse_policy(name) for name in POLICY_OF.values()]
    computed = replayed(loaded, policies, engine=engine, verify=True)
    counted = replayed(loaded, policies)
    assert computed.verify is not None
    assert computed.verify.passed
    assert computed.verify.checked_turns == 7 * len(policies)
    for one, other in zip(computed.policies, counted.policies, strict=True):
        assert all(turn.error is None and turn.cost is not None for turn in one.turns)
        assert tuple(replace(turn, cost=None) for turn in one.turns) == other.turns
        assert one.server_cache == other.server_cache
        assert one.server_cache.layers == engine.model_kind
        assert totals(one.turns).reused <= totals(one.turns).prompt_tokens
    reused = {policy.server_cache.kind: policy.totals.reused for policy in computed.policies}
    # Tails, ends of prompts or checkpoints give something back, though no block of oMLX's is full.
    for kind in ("paged", "rapid-mlx", "llama.cpp", "sglang", "mlx-lm"):
        assert reused[kind] > 0, kind


def test_replies_are_stored_as_they_are_counted(model):
    loaded, engine = model
    policies = [parse_policy(name) for name in ("omlx", "rapid-mlx", "vllm")]
    computed = replayed(loaded, policies, engine=engine, verify=True, store="prompt+output")
    counted = replayed(loaded, policies, store="prompt+output")
    assert computed.verify.passed
    for one, other in zip(computed.policies, counted.policies, strict=True):
        assert tuple(replace(turn, cost=None) for turn in one.turns) == other.turns
        for turn in one.turns:
            assert (turn.cost.measured.output > 0) is bool(turn.reply and turn.reply.tokens)
    assert any(turn.reply and turn.reply.tokens for turn in computed.policies[-1].turns)


def test_a_limit_holds_for_snapshots_too(model):
    loaded, _ = model
    policy = parse_policy("omlx")
    free = replayed(loaded, [policy]).policies[0]
    tight = replayed(loaded, [policy], capacity_bytes=free.cache.bytes // 3).policies[0]
    assert 0 < tight.cache.bytes <= free.cache.bytes // 3
    assert tight.totals.reused < free.totals.reused
