"""Servers' caches with a model that computes: random sessions give cold logits, a wrong lookup does not."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tplaudit.probes.caches.base import PromptBoundaries, last_position
from tplaudit.probes.caches.hashes import recipe
from tplaudit.probes.caches.paged import PagedCache
from tplaudit.probes.caches.registry import make_cache
from tplaudit.probes.engine.mlx_engine import tolerance
from tplaudit.probes.policies.registry import POLICIES

TINY = runpy.run_path(str(Path(__file__).parents[1] / "tiny_models.py"))
SIZE = 16
#: The caches that servers keep unless they are told otherwise.
KINDS = tuple(dict.fromkeys(kind.cache.partition(":")[0] for kind in POLICIES.values()))
PAIRS = [
    (name, kind) if name == "qwen3_5" else pytest.param(name, kind, marks=pytest.mark.slow)
    for name in ("qwen3_5", "llama", "gemma3_text", "baichuan_m1", "llama4", "deepseek_v32")
    for kind in KINDS
]


@pytest.fixture(scope="module")
def engines():
    made = {}

    def get(name):
        if name not in made:
            made[name] = TINY["build"](name)
        return made[name]

    return get


def small(kind, engine, capacity):
    """A server's cache whose distances are those of short prompts."""
    size = SIZE if kind == "paged" else None
    cache = make_cache(kind, model_kind=engine.model_kind, block_size=size, capacity_bytes=capacity)
    for name in ("stride", "min_tokens", "micro_batch", "before_end", "refresh"):
        if hasattr(cache, name):
            setattr(cache, name, {"stride": SIZE, "refresh": 40}.get(name, 4))
    return cache


def random_ids(length, seed):
    return np.random.default_rng(seed).integers(0, TINY["VOCABULARY"], length, dtype=np.int32)


def turn(engine, cache, ids, output=0, marks=None):
    """One request; returns what was reused and the prefill."""
    match = cache.match(ids[: len(ids) - output])
    with cache.pin(match):
        prefill = engine.prefill(
            ids[: len(ids) - output],
            [block.payload for block in match.blocks],
            match.reused,
            chunk=64,
            spans=cache.spans(ids, match, marks or PromptBoundaries()),
            output=ids[len(ids) - output :],
        )
        cache.store(ids, prefill.payloads, match=match, marks=marks or PromptBoundaries())
    return match.reused, prefill


# A request continues an earlier one (which, up to where) with new tokens (how many), a reply behind them.
requests = st.tuples(
    st.integers(0, 9), st.one_of(st.just(1.0), st.floats(0, 1)), st.integers(2, 90), st.integers(0, 20)
)


@pytest.mark.parametrize(("name", "kind"), PAIRS)
@settings(
    max_examples=4,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    print_blob=True,
    phases=[Phase.generate],
)
@given(
    session=st.lists(requests, min_size=3, max_size=5),
    capacity=st.sampled_from([None, 300_000, 60_000]),
    seed=st.integers(0, 2**16),
)
def test_what_a_server_takes_over_gives_cold_logits(engines, name, kind, session, capacity, seed):
    engine = engines(name)
    cache = small(kind, engine, capacity)
    prompts, checks = [random_ids(120, seed)], []
    for step, (earlier, keep, new, replied) in enumerate(session):
        base = prompts[earlier % len(prompts)]
        ids = np.concatenate([base[: round(keep * len(base))], random_ids(new, [seed, step])])[:300]
        output = min(replied, len(ids) - 1)
        prompt = len(ids) - output
        marks = PromptBoundaries(
            prompt_tokens=prompt,
            generation_prompt=last_position([prompt // 2, prompt - 3], prompt - 1) or None,
            turn_end=prompt // 3,
            user_headers=(prompt // 3,),
        )
        _, prefill = turn(engine, cache, ids, output, marks)
        checks.append(engine.verify(ids[:prompt], prefill.logits, chunk=64))
        prompts.append(ids)
    allowed = tolerance(max(check.noise for check in checks))
    assert all(check.difference <= allowed for check in checks), checks


@pytest.mark.parametrize("kind", ["paged", "rapid-mlx", "mlx-lm", "ollama"])
def test_such_sessions_reuse(engines, kind):
    engine = engines("qwen3_5")
    cache = small(kind, engine, None)
    first = random_ids(100, 1)
    turn(engine, cache, first)
    reused, _ = turn(engine, cache, np.concatenate([first, random_ids(20, 2)]))
    assert reused >= 96


@pytest.mark.parametrize("name", ["llama", "qwen3_5", "gemma3_text"])
def test_a_lookup_that_ignores_what_stands_before_is_seen(engines, name):
    engine = engines(name)
    one, other, end = (random_ids(3 * SIZE, seed) for seed in (1, 2, 3))
    asked = np.concatenate([one[:SIZE], other[SIZE:], end])

    def ask(named):
        cache = PagedCache(SIZE, named=named, trimmable=engine.layout.trimmable)
        turn(engine, cache, np.concatenate([one, end]))
        turn(engine, cache, np.concatenate([other, end]))
        reused, prefill = turn(engine, cache, asked)
        return reused, engine.verify(asked, prefill.logits, chunk=64)

    reused, check = ask(None)
    assert reused == SIZE and check.passed
    reused, check = ask(lambda tokens, parent: recipe()(tokens, None))
    assert reused > SIZE and not check.passed
    assert check.difference > 5 * check.tolerance
