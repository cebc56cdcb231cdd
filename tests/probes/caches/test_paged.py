"""The paged cache against a brute-force model of one."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from token_ids import array, turn
from tplaudit.probes.caches import hashes
from tplaudit.probes.caches.base import reusable
from tplaudit.probes.caches.paged import PagedCache
from tplaudit.probes.models.sizes import Sizes
from tplaudit.probes.tokenization.tokens import common_prefix_ids


@dataclass(frozen=True)
class State:
    """A payload that only weighs something."""

    nbytes: int


class Reference:
    """Keeps whole prefixes as tuples; drops the least recently used prefix that no other one continues."""

    def __init__(self, block_size, capacity_blocks):
        self.block_size = block_size
        self.capacity_blocks = capacity_blocks
        self.used = {}
        self.clock = 0

    def chain(self, tokens):
        ends = range(self.block_size, len(tokens) + 1, self.block_size)
        return [tuple(tokens[:end]) for end in ends]

    def match(self, tokens):
        self.clock += 1
        found = 0
        for prefix in self.chain(tokens):
            if prefix not in self.used:
                break
            self.used[prefix] = self.clock
            found = len(prefix)
        return min(found, max(len(tokens) - 1, 0))

    def store(self, tokens):
        self.clock += 1
        mine = self.chain(tokens)
        for prefix in mine:
            if prefix not in self.used and not self.make_room(mine):
                return
            self.used[prefix] = self.clock

    def make_room(self, mine):
        if len(self.used) < self.capacity_blocks:
            return True
        continued = {prefix[: -self.block_size] for prefix in self.used}
        leaves = [prefix for prefix in self.used if prefix not in continued and prefix not in mine]
        if not leaves:
            return False
        del self.used[min(leaves, key=self.used.__getitem__)]
        return True


conversations = st.lists(st.lists(st.integers(0, 1), max_size=14), min_size=1, max_size=14)


@given(conversations, st.integers(1, 4))
def test_without_a_limit_the_closest_stored_sequence_counts(prompts, block_size):
    cache = PagedCache(block_size)
    stored = []
    for tokens in prompts:
        shared = max((common_prefix_ids(array(tokens), other) for other in stored), default=0)
        assert turn(cache, tokens) == reusable(shared, len(tokens), block_size)
        stored.append(array(tokens))
    assert cache.statistics.evicted_blocks == cache.statistics.refused_blocks == 0


@settings(max_examples=300)
@given(conversations, st.integers(1, 3), st.integers(0, 7), st.randoms(use_true_random=False))
def test_with_a_limit_the_least_recently_used_leaf_goes(prompts, block_size, capacity_blocks, random):
    cache = PagedCache(block_size, capacity_bytes=capacity_blocks * block_size * 10 + 9, sizes=Sizes(10))
    unlimited = PagedCache(block_size)
    reference = Reference(block_size, capacity_blocks)
    for tokens in prompts:
        ids = array(tokens)
        match = cache.match(ids)
        assert match.reused == reference.match(tokens) <= turn(unlimited, tokens)
        if random.random() < 0.7:
            with cache.pin(match):
                cache.store(ids)
            reference.store(tokens)
        statistics = cache.statistics
        assert statistics.blocks == len(cache) == len(reference.used) <= capacity_blocks
        assert statistics.bytes == statistics.blocks * block_size * 10 <= cache.capacity_bytes
        assert statistics.stored_blocks - statistics.evicted_blocks == statistics.blocks
        assert not cache._references
    assert statistics.lookups == len(prompts)
    assert statistics.hits + statistics.misses == sum(len(tokens) // block_size for tokens in prompts)


@given(conversations, st.integers(1, 3), st.integers(0, 7))
def test_a_shorter_match_is_explained_by_what_was_dropped(prompts, block_size, capacity_blocks):
    cache = PagedCache(block_size, capacity_bytes=capacity_blocks * block_size, sizes=Sizes(1))
    unlimited = PagedCache(block_size)
    for number, tokens in enumerate(prompts, start=1):
        match = cache.match(array(tokens))
        if len(match.blocks) < len(unlimited.match(array(tokens)).blocks):
            assert match.evicted is not None and 1 <= match.evicted < number
        else:
            assert match.evicted is None
        cache.store(array(tokens))
        unlimited.store(array(tokens))


@given(conversations, st.integers(1, 3), st.integers(1, 6), st.randoms(use_true_random=False))
def test_held_blocks_stay_and_are_counted(prompts, block_size, capacity_blocks, random):
    cache = PagedCache(block_size, capacity_bytes=capacity_blocks * block_size, sizes=Sizes(1))
    holds = []
    for tokens in prompts:
        match = cache.match(array(tokens))
        hold = cache.pin(match)
        hold.__enter__()
        holds.append((match, hold))
        if random.random() < 0.4:
            holds.pop(random.randrange(len(holds)))[1].__exit__(None, None, None)
        cache.store(array(tokens))
        expected = Counter(block.name for match, _ in holds for block in match.blocks)
        assert cache._references == expected and all(name in cache for name in expected)
        assert cache.statistics.bytes <= cache.capacity_bytes
    for _, hold in holds:
        hold.__exit__(None, None, None)
    assert not cache._references


def test_eviction_says_when():
    cache = PagedCache(2, capacity_bytes=3 * 2, sizes=Sizes(1))
    turn(cache, [1, 1, 2, 2, 3, 3])
    turn(cache, [4, 4, 5, 5])
    assert cache.statistics.evicted_blocks == 2
    back = cache.match(array([1, 1, 2, 2, 3, 3, 9]))
    assert (back.reused, back.evicted) == (2, 2)
    assert cache.match(array([8, 8])).evicted is None


def test_a_prompt_larger_than_the_cache_keeps_its_beginning():
    cache = PagedCache(2, capacity_bytes=2 * 2, sizes=Sizes(1))
    turn(cache, [9, 9])
    turn(cache, [1, 1, 2, 2, 3, 3, 4, 4])
    assert cache.statistics.refused_blocks == 2
    match = cache.match(array([1, 1, 2, 2, 3, 3, 4, 4]))
    assert (match.reused, match.evicted) == (4, 2)


def test_a_whole_prompt_is_cut_back_by_one_token():
    cache = PagedCache(4)
    turn(cache, range(8))
    assert cache.match(array(range(8))).reused == 7
    assert len(cache.match(array(range(8))).blocks) == 2
    assert cache.match(array(range(9))).reused == 8
    assert cache.match(array(range(7))).reused == 4
    assert cache.match(array([])).reused == 0


def test_model_names_keep_chains_apart():
    recipes = [hashes.recipe(name) for name in ("one", "other")]
    one, other = (PagedCache(2, named=recipe) for recipe in recipes)
    turn(one, [1, 2]), turn(other, [1, 2])
    names = [cache.match(array([1, 2, 3])).blocks[0].name for cache in (one, other)]
    assert names == [recipe((1, 2), None) for recipe in recipes]


def test_payloads_belong_to_the_last_blocks_and_are_weighed():
    cache = PagedCache(2, capacity_bytes=100)
    cache.store(array([1, 1, 2, 2, 3]), [State(30), State(31)])
    cache.store(array([1, 1, 2, 2, 3, 3]), [State(32)])
    blocks = cache.match(array([1, 1, 2, 2, 3, 3, 4])).blocks
    assert [(block.start, block.payload.nbytes) for block in blocks] == [(0, 30), (2, 31), (4, 32)]
    assert cache.statistics.bytes == 93


def test_storing_ends_where_a_payload_is_missing():
    cache = PagedCache(2)
    cache.store(array([1, 1, 2, 2]), [State(1)])
    assert len(cache) == 0
    with pytest.raises(ValueError, match="2 payloads for 1 full blocks"):
        cache.store(array([1, 1, 2]), [State(1), State(1)])


def test_sizes_that_cannot_be_known_are_refused():
    with pytest.raises(ValueError, match="at least one token"):
        PagedCache(0)
    with pytest.raises(ValueError, match="payloads or sizes"):
        PagedCache(2, capacity_bytes=10).store(array([1, 1]))


def test_only_what_differs_from_the_last_prompt_is_hashed(monkeypatch):
    hashed = []
    digest = hashes.sha256
    monkeypatch.setattr(hashes, "sha256", lambda data: hashed.append(data) or digest(data))
    cache = PagedCache(16)
    ids = np.arange(16_000, dtype=np.int32)
    for length in range(8_000, 16_000, 100):
        cache.match(ids[:length])
        cache.store(ids[:length])
    assert len(hashed) == 15_900 // 16


def test_the_caller_may_reuse_its_array():
    cache = PagedCache(2)
    ids = array([1, 2, 3, 4])
    cache.store(ids)
    ids[:] = 0
    assert cache.match(ids).reused == 0
    assert cache.match(array([1, 2, 3, 4, 5])).reused == 4


def test_an_interrupted_store_leaves_a_usable_cache():
    class Stop:
        @property
        def nbytes(self):
            raise KeyboardInterrupt

    cache = PagedCache(2, capacity_bytes=6)
    with pytest.raises(KeyboardInterrupt):
        cache.store(array([1, 1, 2, 2, 3, 3]), [State(2), State(2), Stop()])
    match = cache.match(array([1, 1, 2, 2, 3, 3]))
    assert (match.reused, cache.statistics.bytes) == (4, 4)
    assert not cache._references
    cache.store(array([7, 7, 8, 8, 9, 9]), [State(2), State(2), State(2)])
    assert cache.match(array([7, 7, 8, 8, 9, 9, 0])).reused == 6
