"""What holds for all caches of whole sequences."""

from dataclasses import dataclass
from weakref import WeakSet

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from token_ids import HYBRID, array, conversations, turn
from tplaudit.probes.caches.base import Block, Match, PromptBoundaries, bytes_before, last_position, trim
from tplaudit.probes.caches.sequence_cache import SequenceCache
from tplaudit.probes.caches.servers.llama_cpp import LlamaCppCache
from tplaudit.probes.caches.servers.mlx_lm import MlxLmCache
from tplaudit.probes.caches.servers.mlx_vlm import MlxVlmSnapshots
from tplaudit.probes.caches.servers.mtplx import MtplxCache
from tplaudit.probes.caches.servers.ollama import OllamaCache
from tplaudit.probes.caches.servers.rapid_mlx import RapidMlxCache
from tplaudit.probes.caches.servers.sglang import SglangCache
from tplaudit.probes.caches.servers.vllm_mlx import VllmMlxCache, VllmMlxLegacyCache, VllmMlxSimpleCache
from tplaudit.probes.models.layers import Layers
from tplaudit.probes.models.sizes import Sizes
from tplaudit.probes.tokenization.tokens import common_prefix_ids

ALL = [
    MlxLmCache,
    RapidMlxCache,
    VllmMlxCache,
    VllmMlxLegacyCache,
    VllmMlxSimpleCache,
    MlxVlmSnapshots,
    MtplxCache,
    LlamaCppCache,
    SglangCache,
    OllamaCache,
]


# Sequences


def test_cut_blocks_end_where_they_are_cut():
    @dataclass(frozen=True)
    class State:
        end: int

        @property
        def nbytes(self):
            return 10 * self.end

        def trim(self, end):
            return State(end)

        def bytes_before(self, end):
            return 10 * end

    blocks = (Block(b"", 0, 4, 40, State(4), True), Block(b"", 4, 8, 80, State(8), True))
    assert trim(blocks, 8) == blocks and trim(blocks, 4) == blocks[:1] and trim(blocks, 0) == ()
    assert trim(blocks, 5) == (blocks[0], Block(b"", 4, 5, 50, State(5), False))
    assert [bytes_before(blocks, end) for end in (0, 3, 4, 5, 8)] == [0, 30, 40, 90, 120]


# What holds for all of them


@settings(max_examples=60, deadline=None)
@given(conversations, st.booleans(), st.randoms(use_true_random=False))
@pytest.mark.parametrize("kind", ALL)
def test_payloads_are_those_of_the_prompts_own_tokens(kind, prompts, hybrid, random):
    @dataclass(frozen=True)
    class State:
        tokens: tuple[int, ...]
        nbytes: int = 1

        def trim(self, end):
            assert not hybrid
            return State(self.tokens[:end])

        def bytes_before(self, end):
            return self.nbytes

    cache = kind(HYBRID if hybrid else Layers())
    lengths = ("min_tokens", "min_shared", "min_new", "stride", "grid", "before_end", "batch", "micro_batch")
    for name in filter(lambda each: hasattr(cache, each), lengths):
        setattr(cache, name, 1)
    for tokens in prompts:
        ids = array(tokens)
        starts = tuple(sorted(random.sample(range(1, 12), 2)))
        prompt = random.randint(1, len(tokens))
        marks = PromptBoundaries(
            prompt_tokens=prompt,
            system_end=random.randint(0, 3),
            system_prefix=random.randint(0, 3),
            turn_end=max((at for at in starts if at < prompt), default=0),
            user_headers=tuple(at for at in starts if at < prompt),
        )
        match = cache.match(ids[:prompt], marks)
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
    if kind not in (LlamaCppCache, VllmMlxSimpleCache):
        with pytest.raises(ValueError, match="payloads or sizes"):
            kind(Layers(), capacity_bytes=10).store(array(range(300)))


@settings(max_examples=60, deadline=None)
@given(conversations, st.integers(0, 60), st.booleans())
@pytest.mark.parametrize("kind", ALL)
def test_capacity_is_kept_and_a_loss_explained(kind, prompts, capacity, hybrid):
    layers = HYBRID if hybrid else Layers()
    cache = kind(layers, capacity_bytes=capacity, sizes=Sizes(1))
    if hasattr(cache, "min_tokens"):
        cache.min_tokens = 1
    for number, tokens in enumerate(prompts, 1):
        match = cache.match(array(tokens))
        assert match.evicted is None or 1 <= match.evicted < number
        cache.store(array(tokens), match=match)
        counts = cache.statistics
        slots = cache._slots if isinstance(cache, LlamaCppCache) else ()
        assert counts.bytes - sum(slot.nbytes for slot in slots if slot) <= capacity
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

        def trim(self, end):
            return State(self.nbytes)

        def bytes_before(self, end):
            return self.nbytes

    cache = kind(HYBRID if hybrid else Layers(), capacity_bytes=capacity)
    if hasattr(cache, "min_tokens"):
        cache.min_tokens = 1
    for tokens in prompts:
        ids = array(tokens)
        match = cache.match(ids)
        cache.store(ids, [State(span.end - span.start) for span in cache.spans(ids, match)], match=match)
        del match
        slots = cache._slots if isinstance(cache, LlamaCppCache) else ()
        entries = [*cache._entries, *(slot for slot in slots if slot)]
        held = {block.payload for entry in entries for block in entry.blocks}
        assert set(alive) == held


def test_what_was_dropped_explains_a_shorter_match():
    cache = SglangCache(capacity_bytes=8, sizes=Sizes(1))
    for tokens in ([1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]):
        turn(cache, tokens)
    assert cache.statistics.evicted_blocks == 1
    assert cache.match(array([1, 1, 1, 9])) == Match(0, (), 3)
    assert cache.match(array([8])).evicted is None
    refused = SglangCache(capacity_bytes=2, sizes=Sizes(1))
    turn(refused, [1, 1, 1])
    assert refused.statistics.refused_blocks == 1
    assert refused.match(array([1, 1, 2])).evicted == 1


# Granularity of one conversation: tests/cases/28-cache-granularity


class Fixed(SequenceCache):
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
        whole = MlxLmCache(HYBRID)
        whole.last_token_apart = False
        whole.store(earlier)
        assert whole.match(later).reused == pair["reused_if_entry_cannot_be_trimmed"]
