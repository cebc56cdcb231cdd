"""Every kind of state that mlx-lm's models keep: put back it gives cold logits, broken it does not."""

import runpy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tplaudit.probes.engine import mlx_model
from tplaudit.probes.engine.mlx_engine import MLXEngine, tolerance
from tplaudit.probes.engine.mlx_model import LoadedModel
from tplaudit.probes.engine.states import ModelState, leaves, refusals
from tplaudit.probes.errors import InputError
from tplaudit.probes.models.state_size import state_size
from tplaudit.probes.tokenization.token_range import TokenRange
from tplaudit.probes.tokenization.tokens import common_prefix_ids

TINY = runpy.run_path(str(Path(__file__).parents[1] / "tiny_models.py"))
CONFIGS, KINDS, build = TINY["CONFIGS"], TINY["KINDS"], TINY["build"]
VOCABULARY, WINDOW = TINY["VOCABULARY"], TINY["WINDOW"]
UNSLICEABLE = [name for name, kind in KINDS.items() if kind not in ("plain", "quantised:8")]
#: One family for each kind of state; random sessions of the others run with the slow tests.
SAMPLE = ("llama", "kv_bits", "qwen3_5", "gemma3_text", "baichuan_m1", "llama4")
SIZE = 16


@pytest.fixture(scope="module")
def engines():
    made = {}

    def get(name):
        if name not in made:
            made[name] = build(name)
        return made[name]

    return get


@pytest.fixture(params=CONFIGS)
def engine(request, engines):
    return engines(request.param)


def spans(start, end, snapshots):
    """The full blocks between two positions, and a tail for each snapshot between two block ends."""
    full = [
        TokenRange(at, at + SIZE, at + SIZE in snapshots)
        for at in range(start // SIZE * SIZE, end - SIZE + 1, SIZE)
    ]
    tails = [TokenRange(at // SIZE * SIZE, at, True) for at in snapshots if at % SIZE and start < at <= end]
    return sorted([*full, *tails], key=lambda span: span.end)


def random_ids(length, seed=0):
    return np.random.default_rng(seed).integers(0, VOCABULARY, length, dtype=np.int32)


class Store:
    """Blocks by the tokens they stand for; takes over whatever can be restored."""

    def __init__(self):
        self.blocks = {}

    def match(self, engine, ids):
        chain, end = [], SIZE
        while (block := self.blocks.get((end - SIZE, ids[:end].tobytes()))) and end <= len(ids):
            chain.append(block)
            end += SIZE
        found = [(engine.resumable(chain, len(ids) - 1), chain)]
        for cut in range(len(chain) + 1):
            for at in range(cut * SIZE + 1, min(cut * SIZE + SIZE, len(ids))):
                if tail := self.blocks.get((cut * SIZE, ids[:at].tobytes())):
                    found.append((engine.resumable([*chain[:cut], tail], at), [*chain[:cut], tail]))
        return max(found, key=lambda pair: pair[0])

    def add(self, ids, prefill):
        for block in prefill.payloads:
            key = (block.start, ids[: block.end].tobytes())
            if key not in self.blocks or self.blocks[key].nbytes < block.nbytes:
                self.blocks[key] = block

    def evict(self, share, seed):
        gone = np.random.default_rng(seed).random(len(self.blocks)) < share
        self.blocks = {
            key: block for (key, block), out in zip(self.blocks.items(), gone, strict=True) if not out
        }


def settled(logits, allowed):
    """Whether rounding cannot change which token is the likeliest."""
    second, first = np.sort(logits)[-2:]
    return first - second > 2 * allowed


# A request continues an earlier one (which, up to where) with new tokens (how many) and is stored with
# snapshots at all block ends or at some positions only.
requests = st.tuples(
    st.integers(0, 9),
    st.one_of(st.just(1.0), st.floats(0, 1)),
    st.integers(1, 120),
    st.one_of(st.none(), st.lists(st.floats(0, 1), max_size=3)),
)


@pytest.mark.parametrize(
    "name", [name if name in SAMPLE else pytest.param(name, marks=pytest.mark.slow) for name in CONFIGS]
)
@settings(
    max_examples=8,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    # Making a failing session smaller would take minutes.
    phases=[Phase.generate],
)
@given(
    session=st.lists(requests, min_size=3, max_size=4),
    chunk=st.sampled_from([32, 100, 512]),
    evicted=st.sampled_from([0.0, 0.1]),
    seed=st.integers(0, 2**16),
)
def test_restored_prefixes_give_cold_logits(engines, name, session, chunk, evicted, seed):
    engine, store = engines(name), Store()
    prompts = [random_ids(150, seed)]
    checks = []
    for step, (earlier, keep, new, snapshots) in enumerate(session):
        base = prompts[earlier % len(prompts)]
        ids = np.concatenate([base[: round(keep * len(base))], random_ids(new, [seed, step])])[:400]
        reused, blocks = store.match(engine, ids)
        at = snapshots and {SIZE, *(round(share * len(ids)) for share in snapshots)}
        wanted = None if at is None else spans(reused, len(ids), at)
        prefill = engine.prefill(ids, blocks, reused, block_size=SIZE, chunk=chunk, spans=wanted)
        checks.append((engine.verify(ids, prefill.logits, chunk=chunk), prefill.logits))
        store.add(ids, prefill)
        store.evict(evicted, [seed, step])
        prompts.append(ids)
    allowed = tolerance(max(check.noise for check, _ in checks))
    assert all(check.difference <= allowed for check, _ in checks), checks
    assert all(check.argmax_equal for check, logits in checks if settled(logits, allowed)), checks


def test_the_sample_has_every_kind_of_state():
    assert {KINDS[name] for name in SAMPLE} == set(KINDS.values())


@pytest.mark.parametrize(("shared", "new"), [(90, 30), (96, 1), (47, 200), (15, 5)])
def test_reuse_is_what_the_shared_blocks_hold(engine, shared, new):
    ids, store = random_ids(96 + 5), Store()
    store.add(ids, engine.prefill(ids, block_size=SIZE))
    branch = np.concatenate([ids[:shared], random_ids(new, 1)])
    reused, blocks = store.match(engine, branch)
    assert common_prefix_ids(ids, branch) == shared
    assert reused == shared // SIZE * SIZE
    prefill = engine.prefill(branch, blocks, reused, block_size=SIZE)
    assert engine.verify(branch, prefill.logits).passed
    assert [block.start for block in prefill.payloads] == list(range(reused, len(branch) - SIZE + 1, SIZE))


def test_a_whole_prompt_goes_on_one_token_earlier_only_where_it_can_be_cut(engine):
    ids = random_ids(96)
    blocks = engine.prefill(ids, block_size=SIZE).payloads
    # The windows hold 40 tokens before position 95, since blocks of 16 keep all of theirs.
    trimmable = engine.layout.recurrent_bytes == 0
    reused = engine.resumable(blocks, 95)
    assert reused == (95 if trimmable else 80)
    assert engine.verify(ids, engine.prefill(ids, blocks, reused, block_size=SIZE).logits).passed


def test_a_tail_goes_on_between_block_ends(engine):
    ids = random_ids(100)
    stored = engine.prefill(ids, spans=spans(0, 100, [32, 48, 64, 80, 90, 93])).payloads
    assert [(block.start, block.end) for block in stored[4:]] == [(64, 80), (80, 90), (80, 93), (80, 96)]
    for tail in stored[5:7]:
        branch = np.concatenate([ids[: tail.end], random_ids(60, 2)])
        # New blocks stand on the grid: the first one has the tail's tokens and what follows.
        again = engine.prefill(
            branch, [*stored[:5], tail], tail.end, spans=spans(tail.end, 140, [96, 112, 128, 130])
        )
        assert engine.verify(branch, again.logits).passed
        assert [block.end for block in again.payloads] == [96, 112, 128, 130]
        longer = np.concatenate([branch[:130], random_ids(20, 3)])
        blocks = [*stored[:5], *again.payloads]
        assert engine.resumable(blocks, 149) == 130
        assert engine.verify(longer, engine.prefill(longer, blocks, 130).logits).passed


def test_a_sequence_in_spans_of_any_length(engine):
    # What a server stores that keeps whole sequences, with checkpoints in them.
    ids = random_ids(150)
    blocks = engine.prefill(
        ids, spans=[TokenRange(0, 61, True), TokenRange(61, 149, True), TokenRange(149, 150)]
    ).payloads
    for count, end in ((1, 61), (2, 149)):
        assert engine.resumable(blocks[:count], 149) == end
        branch = np.concatenate([ids[:end], random_ids(40, 2)])
        prefill = engine.prefill(branch, blocks[:count], end)
        assert engine.verify(branch, prefill.logits).passed
    with pytest.raises(ValueError, match="a span ends at 151, behind the 150 tokens"):
        engine.prefill(ids, spans=[TokenRange(0, 151)])


def test_a_block_cut_short_goes_on_where_its_layers_allow(engine):
    ids = random_ids(150)
    (block,) = engine.prefill(ids, spans=[TokenRange(0, 100, True)]).payloads
    cut = block.trim(90)
    assert (cut.start, cut.end) == (0, 90) and cut.nbytes < block.nbytes
    assert engine.resumable([cut], 149) == (90 if engine.layout.trimmable else 0)
    if engine.layout.trimmable:
        branch = np.concatenate([ids[:90], random_ids(40, 2)])
        assert engine.verify(branch, engine.prefill(branch, [cut], 90).logits).passed
    with pytest.raises(ValueError, match="position 101 is not in the block from 0 to 100"):
        block.trim(101)


@pytest.mark.parametrize("name", ["gemma3_text", "llama4"])
def test_a_window_that_is_not_full_can_be_cut(engines, name):
    engine, ids = engines(name), random_ids(150)
    (block,) = engine.prefill(ids, spans=[TokenRange(0, WINDOW - 1, True)]).payloads
    branch = np.concatenate([ids[:30], random_ids(70, 2)])
    assert engine.resumable([block.trim(30)], 99) == 30
    assert engine.verify(branch, engine.prefill(branch, [block.trim(30)], 30).logits).passed


def test_output_is_stored_with_its_prompt(engine):
    ids, output, later = random_ids(70), random_ids(30, 1), random_ids(20, 2)
    stored = engine.prefill(ids, block_size=SIZE, output=output)
    alone = engine.prefill(ids, block_size=SIZE)
    assert np.array_equal(stored.logits, alone.logits)
    assert [block.end for block in stored.payloads] == [16, 32, 48, 64, 80, 96]
    assert min(stored.seconds, stored.output_seconds, stored.store_seconds) > 0 == alone.output_seconds
    whole = np.concatenate([ids, output, later])
    prefill = engine.prefill(whole, stored.payloads, 96, block_size=SIZE)
    assert engine.verify(whole, prefill.logits).passed


def test_snapshots_stand_where_they_are_asked_for(engines):
    engine = engines("qwen3_5")
    blocks = engine.prefill(random_ids(70), spans=spans(0, 70, [32, 64])).payloads
    assert [bool(block.recurrent) for block in blocks] == [False, True, False, True]
    assert [engine.resumable(blocks, limit) for limit in (70, 63, 31)] == [64, 32, 0]


# Broken restores.


def after_another_prefix(engine, ids, blocks):
    other = np.concatenate([random_ids(len(ids), 9)[: 3 * SIZE], ids[3 * SIZE :]])
    return [*blocks[:3], engine.prefill(other, block_size=SIZE).payloads[3]]


def off_by_one(engine, ids, blocks):
    # The state of the prompt one token late, at the right position.
    return engine.prefill(np.concatenate([ids[:1], ids]), block_size=SIZE).payloads[:4]


def stale(engine, ids, blocks):
    return [*blocks[:3], replace(blocks[2], start=3 * SIZE, end=4 * SIZE)]


def swapped_layers(engine, ids, blocks):
    state = engine._new_state()
    kinds = [
        (part.window, *((array.shape[1], array.shape[-1]) for array in layer))
        for part, layer in zip(state.attention, blocks[0].layers, strict=True)
    ]
    order = list(range(len(kinds)))
    for kind in set(kinds):
        alike = [at for at in order if kinds[at] == kind]
        for at, other in zip(alike, alike[::-1], strict=True):
            order[at] = other
    layers = [tuple(block.layers[at] for at in order) for block in blocks]
    return [
        replace(block, layers=layer, recurrent=block.recurrent[::-1])
        for block, layer in zip(blocks, layers, strict=True)
    ]


@pytest.mark.parametrize("mistake", [after_another_prefix, off_by_one, stale, swapped_layers])
def test_a_broken_restore_would_be_seen(engine, mistake):
    ids = random_ids(4 * SIZE + 3, 1)
    blocks = list(engine.prefill(ids, block_size=SIZE).payloads)
    assert engine.verify(ids, engine.prefill(ids, blocks, 64, block_size=SIZE).logits).passed
    broken = mistake(engine, ids, blocks)
    check = engine.verify(ids, engine.prefill(ids, broken, 64, block_size=SIZE).logits)
    assert not check.passed
    assert check.difference > 5 * check.tolerance


# What is not there is not restored.


@pytest.mark.parametrize("name", ["qwen3_5", "falcon_h1", "baichuan_m1"])
def test_no_snapshot_no_restore(engines, name):
    engine, ids = engines(name), random_ids(70)
    blocks = engine.prefill(ids, spans=spans(0, 70, [32])).payloads
    assert engine.resumable(blocks, 69) == 32
    for reused in (31, 48, 64):
        with pytest.raises(
            ValueError, match=f"after {reused} tokens: .*recurrent layers at position {reused}"
        ):
            engine.prefill(ids, blocks, reused, block_size=SIZE)


@pytest.mark.parametrize("name", ["gemma3_text", "gemma4_text", "gpt_oss", "llama4"])
def test_no_window_no_restore(engines, name):
    engine, ids = engines(name), random_ids(200)
    blocks = engine.prefill(ids, spans=spans(0, 200, [112])).payloads
    assert engine.resumable(blocks, 199) == 112
    # Position 112 looks back to 72, in the block from 64; before that only full attention is kept.
    keep = [block.nbytes for block in blocks]
    assert keep[0] == keep[3] == keep[7] == SIZE * engine.bytes_per_token
    assert keep[3] < keep[4] < keep[5] == keep[6] == block_bytes(engine, SIZE)
    with pytest.raises(ValueError, match=f"what a {KINDS[name]} cache needs before position 111"):
        engine.prefill(ids, blocks, 111, block_size=SIZE)


def test_blocks_with_a_gap_are_not_restored(engine):
    ids = random_ids(70)
    blocks = engine.prefill(ids, block_size=SIZE).payloads
    with pytest.raises(ValueError, match="the block after position 16 starts at 32"):
        engine.prefill(ids, [blocks[0], *blocks[2:]], 64, block_size=SIZE)


# What it takes.


def block_bytes(engine, tokens):
    """Return the bytes of a block of so many tokens with a snapshot at its end."""
    (block,) = engine.layout.sizes.counted([TokenRange(0, tokens, snapshot=True)])
    return block.nbytes


def test_kind_and_bytes(engine):
    name = engine.path.name
    layout = engine.layout
    assert engine.model_kind == layout.kind == KINDS[name]
    windows = [WINDOW] if "rotating" in layout.kind or "chunked" in layout.kind else []
    assert [size for size, _ in layout.windows] == windows
    assert layout.trimmable == (name not in UNSLICEABLE)
    assert (layout.bytes_per_snapshot == 0) == layout.trimmable
    for size in (8, 64):
        blocks = engine.prefill(random_ids(130), block_size=size).payloads
        assert {block.nbytes for block in blocks} == {block_bytes(engine, size)}


@pytest.mark.parametrize("snapshots", [[32, 50, 112, 160, 187], [112], []])
def test_what_blocks_hold_can_be_counted_without_running(engine, snapshots):
    short = spans(0, 200, snapshots)
    stops = [0, *snapshots, 200]
    long = [TokenRange(start, end, end in snapshots) for start, end in pairwise(stops)]
    for wanted in (short, long):
        states = engine.prefill(random_ids(200), spans=wanted).payloads
        counts = engine.layout.sizes.counted(wanted)
        assert [state.nbytes for state in states] == [count.nbytes for count in counts]
        for state, count in zip(states, counts, strict=True):
            for end in {state.start + 1, state.end - 1} - {state.start, state.end}:
                assert state.trim(end).nbytes == state.bytes_before(end) == count.trim(end).nbytes
                assert count.bytes_before(end) == count.trim(end).nbytes < count.nbytes
            middle = (state.start + state.end) // 2
            if state.start < middle - 1:
                twice, counted = (each.trim(middle).trim(middle - 1) for each in (state, count))
                assert twice.nbytes == counted.nbytes == state.bytes_before(middle - 1)


def test_blocks_share_no_memory_with_the_run(engine):
    import mlx.core as mx

    ids = random_ids(600)
    engine.prefill(ids[:10])
    mx.clear_cache()
    before = mx.get_active_memory()
    prefill = engine.prefill(ids, block_size=64)
    block, logits = prefill.payloads[0], prefill.logits
    del prefill
    mx.clear_cache()
    assert logits.dtype == np.float32
    # Each array is rounded up to a page or so.
    arrays = sum(len(layer) for layer in (*block.layers, *block.recurrent))
    assert block.nbytes <= mx.get_active_memory() - before < block.nbytes + arrays * 20_000


@pytest.mark.parametrize("name", ["gemma3_text", "llama4"])
def test_old_windows_take_no_memory(engines, name):
    import mlx.core as mx

    engine, ids = engines(name), random_ids(1500)
    mx.clear_cache()
    before = mx.get_active_memory()
    wanted = [TokenRange(at, at + 50, at >= 1400) for at in range(0, 1500, 50)]
    prefill = engine.prefill(ids, chunk=50, spans=wanted)
    total = sum(block.nbytes for block in prefill.payloads)
    assert total == 1500 * engine.bytes_per_token + 2 * engine.layout.bytes_per_snapshot
    # Blocks, the state with its growth of 256 positions (twice while it grows), a chunk's scores.
    assert prefill.peak_bytes - before < 5 * 1536 * engine.bytes_per_token + 8 * 50 * 1500 * 4


def test_restoring_leaves_blocks_as_they_were(engine):
    ids = random_ids(96)
    blocks = engine.prefill(ids, block_size=96).payloads
    layers = [*blocks[0].layers, *blocks[0].recurrent]
    before = [[np.array(array) for array in layer] for layer in layers]
    for seed in (1, 2):
        engine.prefill(np.concatenate([ids, random_ids(50, seed)]), blocks, 96, block_size=96)
    for old, layer in zip(before, layers, strict=True):
        assert all(np.array_equal(one, np.array(other)) for one, other in zip(old, layer, strict=True))


# What is refused.


def caches():
    mlx_model.load_mlx()
    from mlx_lm.models import cache

    return cache


def test_caches_in_lists_are_flattened():
    made = caches()
    nested = made.CacheList(made.KVCache(), made.CacheList(made.ArraysCache(2), made.RotatingKVCache(8)))
    names = [type(one).__name__ for one in leaves([nested, made.KVCache()])]
    assert names == ["KVCache", "ArraysCache", "RotatingKVCache", "KVCache"]
    assert [part.window for part in ModelState([nested]).parts] == [None, 0, 8]
    assert refusals([nested]) == ()


def test_state_that_cannot_be_restored_exactly_is_named():
    made = caches()

    class LayerCache:
        """A cache that a model brings along."""

    reasons = refusals([made.RotatingKVCache(8, keep=4), LayerCache(), made.KVCache(), LayerCache()])
    assert reasons == (
        "RotatingKVCache keeps its first 4 tokens beside its window",
        "LayerCache is none of mlx-lm's own kinds of state",
    )


def test_chunks_that_lose_tokens_are_named():
    class ChunkedKVCache(caches().ChunkedKVCache):
        """As in mlx-lm 0.31: the padded length counts."""

        def maybe_trim_front(self):
            if self.keys is not None and self.keys.shape[2] >= self.chunk_size:
                self.start_position += self.keys.shape[2] - self.chunk_size

    assert refusals([ChunkedKVCache(8)]) == (
        "ChunkedKVCache of this mlx-lm loses tokens of the chunk (0.32 does not)",
    )


class Own:
    """A model with cache objects of another kind."""

    def __init__(self, model, make):
        self.model = model
        self.make_cache = make

    def __call__(self, ids, cache):
        return self.model(ids, cache=cache)


def with_caches(engine, make, **options):
    return MLXEngine(LoadedModel(Own(engine._model, make), engine.path, engine.blas, ""), **options)


def test_a_model_with_such_state_is_refused(engines):
    made = caches()
    with pytest.raises(InputError, match=r"cannot be restored exactly: .* first 4 tokens") as caught:
        with_caches(engines("llama"), lambda: [made.RotatingKVCache(64, keep=4) for _ in range(3)])
    assert "--engine tokens" in str(caught.value)


def test_concatenating_caches_are_plain(engines):
    made, ids = caches(), random_ids(70)
    engine = with_caches(engines("llama"), lambda: [made.ConcatenateKVCache() for _ in range(3)])
    assert engine.layout == engines("llama").layout
    blocks = engine.prefill(ids, block_size=SIZE).payloads
    assert engine.verify(ids, engine.prefill(ids, blocks, 63, block_size=SIZE).logits).passed


@pytest.mark.parametrize("name", ["gemma3_text", "falcon_h1"])
def test_kv_bits_where_mlx_lm_cannot_quantise(engines, name):
    with pytest.raises(InputError, match="cannot keep quantised K and V"):
        MLXEngine(LoadedModel(engines(name)._model, Path(name), engines(name).blas, ""), kv_bits=8)


def test_kv_bits_quantise_what_can_be_cut_only(engines):
    hybrid = engines("qwen3_5")
    model = LoadedModel(hybrid._model, hybrid.path, hybrid.blas, "")
    engine, ids = MLXEngine(model, kv_bits=8, kv_group_size=32), random_ids(100)
    assert engine.model_kind == "hybrid+quantised:8"
    assert engine.bytes_per_token < hybrid.bytes_per_token / 2
    blocks = engine.prefill(ids, block_size=SIZE).payloads
    assert engine.verify(ids, engine.prefill(ids, blocks, 96, block_size=SIZE).logits).passed


def test_kv_bits_that_do_not_fit_the_heads(engines):
    llama = engines("llama")
    with pytest.raises(InputError, match="fails on a prompt of two tokens"):
        MLXEngine(LoadedModel(llama._model, llama.path, llama.blas, ""), kv_bits=8, kv_group_size=64)


@pytest.mark.parametrize("name", [name for name in CONFIGS if name != "kv_bits"])
def test_what_the_config_tells_is_what_the_state_takes(engines, name):
    told, layout = state_size(CONFIGS[name]), engines(name).layout
    assert told.kind == layout.kind
    assert told.bytes_per_token in (None, layout.bytes_per_token)
    assert told.bytes_per_snapshot in (None, layout.bytes_per_snapshot)
    if name not in ("gemma4_text", "falcon_h1", "baichuan_m1", "deepseek_v32", "llama4"):
        assert told.bytes_per_token is not None
        assert told.bytes_per_snapshot is not None
