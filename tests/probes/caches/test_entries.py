"""Caches of whole sequences, each beside a brute-force statement of its rule."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakSet

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tplaudit.probes.caches.base import Block, Marks, Match, Span, cut, last_position
from tplaudit.probes.caches.entries import EntryCache
from tplaudit.probes.caches.layers import Layers
from tplaudit.probes.caches.llama_cpp import LlamaCppCache
from tplaudit.probes.caches.memory import RapidMlxCache, VllmMlxCache, VllmMlxLegacyCache
from tplaudit.probes.caches.mlx_lm import MlxLmCache
from tplaudit.probes.caches.mlx_vlm import MlxVlmSnapshots
from tplaudit.probes.caches.sequences import TokenSequence
from tplaudit.probes.caches.trees import OllamaCache, SglangCache
from tplaudit.probes.tokens import common_prefix_ids

HYBRID = Layers(recurrent=True)
ALL = [
    MlxLmCache,
    RapidMlxCache,
    VllmMlxCache,
    VllmMlxLegacyCache,
    MlxVlmSnapshots,
    LlamaCppCache,
    SglangCache,
    OllamaCache,
]
conversations = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=12), min_size=1, max_size=10)


def array(tokens):
    return np.array(tokens, np.int32)


def turn(cache, tokens, marks=None):
    """One request through an engine that only counts; returns what was reused."""
    ids = array(tokens)
    match = cache.match(ids)
    with cache.hold(match):
        cache.store(ids, match=match, marks=marks or Marks())
    return match.reused


def common(one, other):
    return common_prefix_ids(array(one), array(other))


# Sequences


@given(
    st.lists(st.integers(0, 1), max_size=3), st.integers(0, 3000), st.integers(0, 3000), st.integers(0, 3000)
)
def test_sequences_share_chunks_and_compare_like_tuples(tail, first, second, cut_at):
    one = array([0] * first + [1])
    other = array([0] * second + tail)
    a = TokenSequence.of(one)
    b = TokenSequence.of(other, a)
    same = sum(mine is theirs for mine, theirs in zip(a.chunks, b.chunks, strict=False))
    shared = common_prefix_ids(one, other)
    assert same >= shared // 1024
    assert a.common(b) == b.common(a) == shared
    assert a.before(b) is (one.tolist() < other.tolist())
    assert b.before(a) is (other.tolist() < one.tolist())
    short = b.prefix(min(cut_at, b.length))
    assert short.length == min(cut_at, b.length) == short.common(b)


def test_cut_blocks_end_where_they_are_cut():
    @dataclass(frozen=True)
    class State:
        end: int
        nbytes: int = 40

        def cut(self, end):
            return State(end)

    blocks = (Block(b"", 0, 4, 40, State(4), True), Block(b"", 4, 8, 40, State(8), True))
    assert cut(blocks, 8) == blocks and cut(blocks, 4) == blocks[:1] and cut(blocks, 0) == ()
    assert cut(blocks, 5) == (blocks[0], Block(b"", 4, 5, 10, State(5), False))


# What holds for all of them


@settings(max_examples=60, deadline=None)
@given(conversations, st.booleans(), st.randoms(use_true_random=False))
@pytest.mark.parametrize("kind", ALL)
def test_payloads_are_those_of_the_prompts_own_tokens(kind, prompts, hybrid, random):
    @dataclass(frozen=True)
    class State:
        tokens: tuple[int, ...]
        nbytes: int = 1

        def cut(self, end):
            assert not hybrid
            return State(self.tokens[:end])

    cache = kind(HYBRID if hybrid else Layers())
    for name in ("min_tokens", "stride", "before_end", "micro_batch"):
        if hasattr(cache, name):
            setattr(cache, name, 1)
    for tokens in prompts:
        ids = array(tokens)
        starts = tuple(sorted(random.sample(range(1, 12), 2)))
        prompt = random.randint(1, len(tokens))
        marks = Marks(
            prompt_tokens=prompt,
            system_end=random.randint(0, 3),
            user_starts=tuple(at for at in starts if at < prompt),
        )
        match = cache.match(ids[:prompt])
        at = 0
        for block in match.blocks:
            assert block.start == at and block.payload.tokens == tuple(tokens[: block.end])
            at = block.end
        assert at == match.reused < prompt
        assert not hybrid or all(block.snapshot for block in match.blocks[-1:])
        spans = cache.spans(ids, match, marks)
        assert [span.start for span in spans] == [match.reused, *(span.end for span in spans[:-1])]
        assert not spans or spans[-1].end == len(tokens)
        cache.store(ids, [State(tuple(tokens[: span.end])) for span in spans], match=match, marks=marks)


@pytest.mark.parametrize("kind", ALL)
def test_mistakes_are_refused(kind):
    cache = kind(HYBRID)
    with pytest.raises(ValueError, match="payloads for"):
        cache.store(array(range(300)), [])
    with pytest.raises(ValueError, match="no block holds them"):
        cache.store(array(range(300)), match=Match(200))
    if kind is not LlamaCppCache:
        with pytest.raises(ValueError, match="bytes_per_token"):
            kind(Layers(), capacity_bytes=10).store(array(range(300)))


@settings(max_examples=60, deadline=None)
@given(conversations, st.integers(0, 60), st.booleans())
@pytest.mark.parametrize("kind", ALL)
def test_capacity_is_kept_and_a_loss_explained(kind, prompts, capacity, hybrid):
    layers = HYBRID if hybrid else Layers()
    cache = kind(layers, capacity_bytes=capacity, bytes_per_token=1)
    if hasattr(cache, "min_tokens"):
        cache.min_tokens = 1
    for number, tokens in enumerate(prompts, 1):
        match = cache.match(array(tokens))
        assert match.evicted is None or 1 <= match.evicted < number
        cache.store(array(tokens), match=match)
        counts = cache.statistics
        slot = cache._slot.nbytes if isinstance(cache, LlamaCppCache) else 0
        assert counts.bytes - slot <= capacity
        assert (counts.blocks == 0) is (counts.bytes == 0)
    assert cache.statistics.lookups == len(prompts)
    assert cache.statistics.hits + cache.statistics.misses == sum(map(len, prompts))


@settings(max_examples=40, deadline=None)
@given(conversations, st.integers(0, 30), st.booleans())
@pytest.mark.parametrize("kind", ALL)
def test_no_state_outlives_its_sequence(kind, prompts, capacity, hybrid):
    alive = WeakSet()

    class State:
        def __init__(self, length):
            self.nbytes = length
            alive.add(self)

        def cut(self, end):
            return State(self.nbytes)

    cache = kind(HYBRID if hybrid else Layers(), capacity_bytes=capacity)
    if hasattr(cache, "min_tokens"):
        cache.min_tokens = 1
    for tokens in prompts:
        ids = array(tokens)
        match = cache.match(ids)
        cache.store(ids, [State(span.end - span.start) for span in cache.spans(ids, match)], match=match)
        del match
        entries = [*cache._entries, *([cache._slot] if isinstance(cache, LlamaCppCache) else [])]
        held = {block.payload for entry in entries for block in entry.blocks}
        assert set(alive) == held


def test_what_was_dropped_explains_a_shorter_match():
    cache = SglangCache(capacity_bytes=8, bytes_per_token=1)
    for tokens in ([1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]):
        turn(cache, tokens)
    assert cache.statistics.evicted_blocks == 1
    assert cache.match(array([1, 1, 1, 9])) == Match(0, (), 3)
    assert cache.match(array([8])).evicted is None
    refused = SglangCache(capacity_bytes=2, bytes_per_token=1)
    turn(refused, [1, 1, 1])
    assert refused.statistics.refused_blocks == 1
    assert refused.match(array([1, 1, 2])).evicted == 1


# Trees


@given(conversations)
def test_sglang_shares_every_token(prompts):
    cache = SglangCache(bytes_per_token=1)
    for number, tokens in enumerate(prompts):
        shared = max((common(tokens, other) for other in prompts[:number]), default=0)
        assert turn(cache, tokens) == min(shared, len(tokens) - 1) == cache.reusable(shared, len(tokens))
        # Every distinct beginning is one node of the tree.
        nodes = {tuple(other[:end]) for other in prompts[: number + 1] for end in range(1, len(other) + 1)}
        assert cache.statistics.bytes == len(nodes)


def test_a_branch_gives_way_up_to_where_another_one_shares_it():
    cache = SglangCache(capacity_bytes=8, bytes_per_token=1)
    turn(cache, [1, 2, 3, 4])
    turn(cache, [1, 2, 5, 6])
    turn(cache, [7, 8, 9])
    assert cache.statistics.bytes == 7
    assert cache.match(array([1, 2, 3, 4, 0])).reused == 2


def test_ollamas_snapshots():
    cache = OllamaCache(HYBRID)
    cache.stride = 8
    ids = array(range(24))
    marks = Marks(prompt_tokens=22)
    spans = cache.spans(ids, Match(0), marks)
    assert spans == tuple(Span(*ends, True) for ends in [(0, 8), (8, 16), (16, 18), (18, 24)])
    turn(cache, range(24), marks)
    reused = {at: cache.match(array([*range(at), 99, 98])).reused for at in (7, 8, 17, 18, 23, 24)}
    assert reused == {7: 0, 8: 8, 17: 16, 18: 18, 23: 18, 24: 24}
    # Continued, the old end is no place to go back to, but a parting leaves a snapshot there.
    turn(cache, range(40))
    assert cache.match(array([*range(24), 99])).reused == 24
    assert cache.match(array([*range(25), 99])).reused == 24
    assert turn(cache, [*range(27), 99]) == 24
    assert cache.match(array([*range(27), 98])).reused == 27


def test_issue_18267():
    """ollama/ollama#18267: where one identifier of 65,303 tokens differs, a multiple of 8192 is reused."""
    cache = OllamaCache(HYBRID)
    turn(cache, range(65303))
    assert turn(cache, [*range(50000), *range(100000, 115303)]) == 49152
    assert turn(cache, [*range(50000), *range(100000, 100010)]) == 50000
    plain = OllamaCache()
    turn(plain, range(65303))
    assert plain.match(array([*range(50000), 1])).reused == 50000


# llama.cpp


@given(conversations)
def test_a_slot_keeps_what_its_last_prompt_shares(prompts):
    cache = LlamaCppCache()
    slot, aside = [], []
    for tokens in prompts:
        kept = common(slot, tokens)
        if slot and kept < len(slot) / 2:
            if not any(other[: len(slot)] == slot for other in aside):
                aside = [other for other in aside if slot[: len(other)] != other] + [slot]
            best, share, most = None, kept / len(slot), kept
            for other in aside:
                shared = common(other, tokens)
                if shared / len(other) >= 0.25 and shared / len(other) > share and shared > most:
                    best, share, most = other, shared / len(other), shared
            if best is not None:
                aside.remove(best)
                slot = best
        assert turn(cache, tokens) == min(common(slot, tokens), len(tokens) - 1)
        slot = tokens
        assert cache.statistics.blocks == 1 + len(aside)


def test_a_prompt_put_aside_comes_back():
    cache = LlamaCppCache()
    turn(cache, range(100))
    turn(cache, range(500, 510))
    assert turn(cache, range(120)) == 100
    assert turn(cache, range(500, 520)) == 10


def test_checkpoints():
    cache = LlamaCppCache(HYBRID, micro_batch=20, min_step=30)
    marks = Marks(prompt_tokens=100, user_starts=(10, 25, 41, 60))
    spans = cache.spans(array(range(110)), Match(0), marks)
    assert [span.end for span in spans] == [10, 41, 60, 76, 96, 110]
    turn(cache, range(110), marks)
    assert cache.reusable(95, 200) == 76
    assert turn(cache, range(130), Marks(user_starts=(115,))) == 110
    # Continued, the slot's old end is no checkpoint.
    assert turn(cache, [*range(112), 999, 998]) == 106 - 10
    assert turn(cache, [*range(9), 999, 998]) == 0


def test_checkpoints_are_limited_and_those_behind_the_prompt_go():
    cache = LlamaCppCache(HYBRID, max_checkpoints=2, micro_batch=20)
    turn(cache, range(100), Marks(user_starts=(50,)))
    assert cache.match(array([*range(76), 999])).reused == 76
    assert cache.match(array([*range(75), 999])).reused == 0


# Rapid-MLX and vllm-mlx; the servers' own lookups were run beside these (docs/caches.md)


@given(conversations)
def test_rapid_mlx_shares_every_token_of_plain_layers(prompts):
    cache = RapidMlxCache()
    for number, tokens in enumerate(prompts):
        shared = max((common(tokens, other) for other in prompts[:number]), default=0)
        assert turn(cache, tokens) == min(shared, len(tokens) - 1) == cache.reusable(shared, len(tokens))


def test_rapid_mlx_goes_back_to_recurrent_checkpoints():
    cache = RapidMlxCache(HYBRID)
    marks = Marks(prompt_tokens=9000, user_starts=(0, 5000))
    spans = cache.spans(array(range(9100)), Match(0), marks)
    assert [span.end for span in spans] == [2048, 4096, 5000, 7048, 9096, 9100]
    turn(cache, range(9100), marks)
    # Four of five are left of the whole: 5000 is the anchor, 9096 the newest, 2048 close behind another.
    assert [cache.reusable(at, 9200) for at in (4095, 4096, 5000, 7048, 9096)] == [0, 4096, 5000, 7048, 9096]
    # The sequence that ends at the message start still has the first one.
    reused = {
        at: cache.match(array([*range(at), -1, -2])).reused for at in (3000, 4999, 5000, 7048, 9097, 9100)
    }
    assert reused == {3000: 2048, 4999: 4096, 5000: 5000, 7048: 7048, 9097: 9096, 9100: 9100}
    # A whole prompt cannot give up its last token; the shorter sequence counts.
    assert cache.match(array(range(9100))).reused == 5000
    assert len(cache) == 2


def test_rapid_mlx_limits_what_cannot_be_cut():
    cache = RapidMlxCache(HYBRID, max_uncut=2)
    for first in range(4):
        turn(cache, [first, 5, 6])
    assert [cache.match(array([first, 5, 6, 7])).reused for first in range(4)] == [0, 0, 3, 3]
    assert len(RapidMlxCache(HYBRID)) == 0


def test_vllm_mlx_prefers_a_whole_sequence_and_prefills_a_whole_prompt_again():
    cache = VllmMlxCache(min_tokens=2)
    turn(cache, [1, 2, 3])
    turn(cache, [1, 2, 3, 4, 5, 6])
    assert cache.match(array([1, 2, 3, 4, 5, 9])).reused == 3
    assert cache.match(array([1, 2, 9])).reused == 2
    assert cache.match(array([1, 9, 9])).reused == 0
    assert cache.match(array([1, 2, 3])).reused == 0
    assert cache.match(array([1, 2, 3, 4])).reused == 0
    assert cache.match(array([1, 2, 3, 4, 5])).reused == 0
    assert cache.reusable(4, 5) == 4 and cache.reusable(5, 5) == 0 and cache.reusable(1, 9) == 0


def test_vllm_mlx_stores_prompts_alone_where_layers_cannot_be_cut():
    cache = VllmMlxCache(HYBRID)
    turn(cache, range(400), Marks(prompt_tokens=300))
    assert cache.match(array(range(350))).reused == 300
    turn(cache, range(3000))
    assert cache.match(array(range(5000))).reused == 300
    turn(cache, range(5000))
    assert cache.match(array(range(6000))).reused == 5000
    assert len(cache) == 1
    turn(cache, range(1000, 1100))
    assert len(cache) == 1


def test_the_legacy_cache_needs_a_sequence_that_ends_where_the_prompt_parts():
    cache = VllmMlxLegacyCache()
    turn(cache, [1, 2, 3])
    turn(cache, [1, 2, 3, 4, 5])
    assert cache.match(array([1, 2, 3, 9])).reused == 3
    assert cache.match(array([1, 2, 3, 4, 9])).reused == 0
    assert cache.match(array([1, 2])).reused == 1
    assert cache.match(array([1, 2, 3, 4, 5])).reused == 4
    assert cache.match(array([1, 2, 3, 4, 5, 6])).reused == 5
    assert VllmMlxLegacyCache(HYBRID).match(array([1])).reused == 0


# mlx-vlm


def test_mlx_vlm_keeps_two_snapshots():
    cache = MlxVlmSnapshots(HYBRID)
    for first in range(3):
        turn(cache, [first, *range(30)])
    assert [cache.match(array([first, *range(40)])).reused for first in range(3)] == [0, 30, 30]
    assert cache.match(array([2, *range(29)])).reused == 0
    assert cache.reusable(31, 41) == 30
    turn(cache, range(16))
    assert len(cache) == 2


# Granularity of one conversation: tests/cases/28-cache-granularity


class Fixed(EntryCache):
    """Copies states at given positions."""

    positions = ()

    def _snapshots(self, sequence, match, marks):
        return [at for at in self.positions if at < sequence.length]


def test_case_28(case_28):
    granularity, prompts = case_28
    for pair in granularity["pairs"]:
        earlier, later = prompts[pair["earlier"]], prompts[pair["later"]]
        shared = pair["shared_chars"]
        assert common_prefix_ids(earlier, later) == shared
        cache = Fixed(HYBRID)
        cache.positions = granularity["checkpoints"][1:]
        cache.store(earlier)
        assert cache.match(later).reused == pair["reused_by_checkpoints"]
        assert last_position(granularity["checkpoints"], shared) == pair["reused_by_checkpoints"]
        whole = MlxLmCache(HYBRID, last_token_apart=False)
        whole.store(earlier)
        assert whole.match(later).reused == pair["reused_if_entry_cannot_be_trimmed"]
