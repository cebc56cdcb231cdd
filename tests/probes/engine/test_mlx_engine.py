"""The real engine: restored prefixes give cold logits, wrong ones do not, and broken models are named."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tplaudit.probes.caches.base import reusable
from tplaudit.probes.caches.paged import PagedCache
from tplaudit.probes.engine.mlx_engine import MLXEngine, Verification, tolerance
from tplaudit.probes.engine.mlx_model import LoadedModel
from tplaudit.probes.engine.states import ModelState
from tplaudit.probes.errors import InputError
from tplaudit.probes.models.state_size import kv_bytes_per_token
from tplaudit.probes.tokenization.tokens import common_prefix_ids

TINY = runpy.run_path(str(Path(__file__).parents[1] / "tiny_models.py"))
VOCABULARY, LLAMA, QWEN3 = TINY["VOCABULARY"], TINY["LLAMA"], TINY["QWEN3"]
CONFIGS = {"llama": LLAMA, "qwen3": QWEN3}


def write_config(directory: Path, config: dict) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    return directory


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    base = tmp_path_factory.mktemp("models")
    return {
        name: MLXEngine.load(write_config(base / name, config), random_weights=True)
        for name, config in CONFIGS.items()
    }


@pytest.fixture
def llama(engines):
    return engines["llama"]


def random_ids(length, seed=0):
    return np.random.default_rng(seed).integers(0, VOCABULARY, length, dtype=np.int32)


def turn(engine, cache, ids, chunk=128):
    """One request: match, prefill the rest, store. Returns the match and the prefill."""
    match = cache.match(ids)
    with cache.pin(match):
        blocks = [block.payload for block in match.blocks]
        prefill = engine.prefill(ids, blocks, match.reused, block_size=cache.block_size, chunk=chunk)
        cache.store(ids, prefill.payloads)
    return match, prefill


# A session: each request continues an earlier one (which, up to where) with new tokens (how many).
sessions = st.lists(
    st.tuples(st.integers(0, 9), st.one_of(st.just(1.0), st.floats(0, 1)), st.integers(0, 200)),
    min_size=3,
    max_size=5,
)


@pytest.mark.slow  # test_states.py has both among all kinds
@pytest.mark.parametrize("name", ["llama", "qwen3"])
@settings(max_examples=20, deadline=None)
@given(sessions, st.sampled_from([16, 32]), st.sampled_from([None, 12]), st.integers(0, 2**16))
def test_restored_prefixes_give_cold_logits(engines, name, session, block_size, capacity_blocks, seed):
    engine = engines[name]
    capacity = capacity_blocks and capacity_blocks * block_size * engine.bytes_per_token
    real = PagedCache(block_size, capacity_bytes=capacity)
    counted = PagedCache(block_size, capacity_bytes=capacity, sizes=engine.layout.sizes)
    prompts = [random_ids(64, seed)]
    checks = []
    for step, (earlier, keep, new) in enumerate(session, start=1):
        base = prompts[earlier % len(prompts)]
        ids = np.concatenate([base[: round(keep * len(base))], random_ids(new, [seed, step])])[:600]
        ids = ids if len(ids) else random_ids(1, [seed, step])
        match, prefill = turn(engine, real, ids)
        assert match.reused == counted.match(ids).reused
        if capacity is None:
            shared = max(common_prefix_ids(ids, other) for other in prompts[1:]) if step > 1 else 0
            assert match.reused == reusable(shared, len(ids), block_size)
        counted.store(ids)
        assert (real.statistics, capacity) == (counted.statistics, real.capacity_bytes)
        checks.append(engine.verify(ids, prefill.logits, chunk=128))
        prompts.append(ids)
    allowed = tolerance(max(check.noise for check in checks))
    assert all(check.argmax_equal and check.difference <= allowed for check in checks), checks


@pytest.mark.parametrize("shift", [-1, 1])
def test_an_offset_that_is_off_by_one_would_be_seen(llama, monkeypatch, shift):
    ids = random_ids(4 * 32 + 5, 1)
    blocks = llama.prefill(ids, block_size=32).payloads
    right = ModelState.restore

    def shifted(state, blocks, length):
        right(state, blocks, length)
        for cache in state.caches:
            cache.offset += shift

    monkeypatch.setattr(ModelState, "restore", shifted)
    check = llama.verify(ids, llama.prefill(ids, blocks[:3], 96, block_size=32).logits)
    assert check.difference > 100 * check.tolerance


def test_memory_is_bounded_by_the_prompt_and_a_chunk(llama):
    import mlx.core as mx

    ids = random_ids(2000)
    llama.prefill(ids[:10])
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    llama.prefill(ids, block_size=64, chunk=64)
    # The prompt's state, its blocks, one reallocation of one layer, and a chunk's scores in two heads.
    assert mx.get_peak_memory() - before < 3 * 2048 * llama.bytes_per_token + 4 * 64 * 2000 * 2 * 4


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_bytes_per_token_is_what_the_configuration_says(engines, name):
    assert engines[name].bytes_per_token == kv_bytes_per_token(CONFIGS[name])
    assert engines[name].vocabulary == VOCABULARY


def test_times_are_measured_apart(llama):
    ids = random_ids(600)
    cold = llama.prefill(ids, block_size=32)
    warm = llama.prefill(ids, cold.payloads, 576, block_size=32)
    assert warm.payloads == ()
    assert 0 < warm.seconds < cold.seconds
    assert min(cold.store_seconds, warm.restore_seconds) > 0


def test_the_warm_up_is_not_timed(tmp_path, monkeypatch):
    engine = MLXEngine.load(write_config(tmp_path / "m", LLAMA), random_weights=True)
    model, calls = engine._model, []
    monkeypatch.setattr(engine, "_empty_caches", lambda: empty_caches(model))

    def spy(ids, cache):
        calls.append(ids.shape[1])
        return model(ids, cache=cache)

    monkeypatch.setattr(engine, "_model", spy)
    engine.prefill(random_ids(300), chunk=128)
    assert calls == [127, 1, 128, 128, 43, 1]
    calls.clear()
    engine.prefill(random_ids(300), chunk=128)
    assert calls == [128, 128, 43, 1]


def empty_caches(model):
    """What the engine gets from its model, for when a spy stands in the model's place."""
    from mlx_lm.models.cache import make_prompt_cache

    return make_prompt_cache(model)


def test_an_interrupt_between_chunks_leaves_nothing_behind(llama, monkeypatch):
    cache, ids = PagedCache(16), random_ids(300)
    turn(llama, cache, ids[:100])
    before = cache.statistics
    model, calls = llama._model, []

    def interrupted(ids, cache):
        calls.append(ids)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return model(ids, cache=cache)

    monkeypatch.setattr(llama, "_empty_caches", lambda: empty_caches(model))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(llama, "_model", interrupted)
        turn(llama, cache, ids, chunk=64)
    assert (cache.statistics.blocks, cache.statistics.bytes) == (before.blocks, before.bytes)
    match, prefill = turn(llama, cache, ids)
    assert match.reused == 96
    assert llama.verify(ids, prefill.logits, chunk=128).passed


def test_a_prompt_of_one_token(llama):
    prefill = llama.prefill(random_ids(1), block_size=1)
    assert len(prefill.payloads) == 1
    assert llama.verify(random_ids(1), prefill.logits).passed


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([], "no tokens"),
        ([1, VOCABULARY, 2], "token id 512, but the model has only 512 ids"),
        ([-1], "id -1"),
    ],
)
def test_prompts_that_the_model_cannot_take(llama, ids, said):
    with pytest.raises(InputError, match=said):
        llama.prefill(np.array(ids, np.int32))


def test_output_that_the_model_does_not_know(llama):
    with pytest.raises(InputError, match="token id 512"):
        llama.prefill(random_ids(5), output=np.array([1, VOCABULARY], np.int32))
    assert len(llama.prefill(random_ids(5), output=random_ids(0), block_size=5).payloads) == 1


@pytest.mark.parametrize(("reused", "blocks"), [(5, 0), (64, 2), (65, 4), (-1, 4)])
def test_reuse_that_the_blocks_do_not_cover(llama, reused, blocks):
    ids = random_ids(64)
    payloads = llama.prefill(ids, block_size=16).payloads[:blocks]
    with pytest.raises(ValueError, match="cannot reuse"):
        llama.prefill(ids, payloads, reused, block_size=16)


def test_verification_in_numbers():
    assert tolerance(0.0) == tolerance(1e-7) == pytest.approx(1e-5)
    assert Verification(9e-5, 1e-5, True).passed
    assert not Verification(2e-4, 1e-5, True).passed
    assert not Verification(0.0, 1e-5, False).passed
    assert not Verification(float("nan"), 1e-5, True).passed


class Spare:
    """A model that makes one cache more than it fills, or none that it can fill."""

    def __init__(self, model, fails=False):
        self.model = model
        self.fails = fails

    def make_cache(self):
        return empty_caches(self.model) + empty_caches(self.model)[:1]

    def __call__(self, ids, cache):
        if self.fails:
            raise RuntimeError("[matmul] shapes differ")
        return self.model(ids, cache=cache[:-1])


@pytest.mark.parametrize(
    ("fails", "said"), [(False, "leave their cache empty"), (True, r"fails on .*RuntimeError: \[matmul\]")]
)
def test_models_that_do_not_work_as_expected_are_refused(llama, fails, said):
    model = Spare(llama._model, fails)
    with pytest.raises(InputError, match=said):
        MLXEngine(LoadedModel(model, llama.path, llama.blas, llama.precision))
