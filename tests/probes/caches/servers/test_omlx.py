"""The paged cache where layers cannot be cut: snapshots, tails, versions."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from token_ids import array, turn
from tplaudit.probes.caches.base import Match, PromptBoundaries
from tplaudit.probes.caches.hashes import recipe
from tplaudit.probes.caches.paged import PagedCache
from tplaudit.probes.caches.partial_blocks import MOST_TAILS, tail_position
from tplaudit.probes.caches.registry import make_cache
from tplaudit.probes.caches.servers.omlx import block_size
from tplaudit.probes.models.layers import Layers
from tplaudit.probes.models.sizes import Sizes
from tplaudit.probes.tokenization.token_range import TokenRange
from tplaudit.probes.tokenization.tokens import common_prefix_ids


@dataclass(frozen=True)
class State:
    """A payload that knows what it is the state of."""

    tokens: tuple[int, ...]
    nbytes: int = 1


# Block sizes


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("plain", 256),
        ("quantised:8", 256),
        ("rotating:128", 512),
        ("rotating:256", 512),
        ("rotating:300", 600),
        ("rotating:511", 1022),
        ("rotating:512", 512),
        ("rotating:700", 700),
        ("rotating:1024", 1024),
        ("rotating:4096", 4096),
        ("hybrid", 2048),
        ("recurrent", 2048),
        ("hybrid+rotating:512", 512),
    ],
)
def test_block_sizes(kind, expected):
    assert block_size(Layers.of(kind)) == expected
    assert make_cache("paged:256", model_kind=kind).block_size == expected
    assert make_cache("paged:256", model_kind=kind, block_size=32).block_size == 32


@given(st.integers(1, 1023))
def test_a_small_windows_blocks_are_the_first_multiple_within_512_and_1024(window):
    multiples = [size for size in range(512, 1025) if size % window == 0]
    assert block_size(Layers(window=window)) == (window if window >= 512 else multiples[0])


# Floors: docs/servers.md, section 1.17


@pytest.mark.parametrize(
    ("size", "shared", "stored", "length", "kind", "version", "expected"),
    [
        pytest.param(2048, 23128, 60000, 60000, "hybrid", "sept", 22528, id="B1"),
        pytest.param(2048, 2047, 60000, 60000, "hybrid", "sept", 0, id="B2"),
        pytest.param(256, 1000, 4000, 5000, "plain", "latest", 768, id="B3"),
        pytest.param(256, 1000, 1000, 4000, "plain", "latest", 768, id="B4"),
        pytest.param(2048, 4096, 4096, 4096, "plain", "latest", 4095, id="B5"),
        pytest.param(2048, 4096, 4096, 4096, "hybrid", "0.5.3", 0, id="B6"),
        pytest.param(2048, 4096, 4096, 4096, "hybrid", "sept", 2048, id="September"),
        pytest.param(1024, 4096, 4096, 4096, "rotating:1024", "sept", 0, id="September, sliding window"),
        pytest.param(4096, 119464, 130000, 130000, "hybrid", "sept", 118784, id="4096"),
        pytest.param(2048, 33219, 40000, 40000, "hybrid", "sept", 32768, id="33219"),
        pytest.param(2048, 24600, 40000, 40000, "hybrid", "sept", 24576, id="24600"),
        pytest.param(2048, 25200, 40000, 40000, "hybrid", "sept", 24576, id="25200"),
    ],
)
def test_floors(size, shared, stored, length, kind, version, expected):
    cache = make_cache("paged", model_kind=kind, block_size=size, options={"version": version})
    assert cache.reusable(shared, length) == expected
    turn(cache, range(stored))
    assert cache.reusable(shared, length) == expected
    prompt = array([*range(shared), *(-token for token in range(shared + 1, length + 1))])
    assert cache.match(prompt).reused == expected


def test_the_trace_of_issue_2876():
    """jundot/omlx#2876; its fourth row gives 0 where the rule gives 2048, see docs/caches.md."""
    cache = make_cache("paged", model_kind="hybrid", options={"version": "sept"})
    prompts = [784, 1568, 2381, 3218, 4057, 4896, 5735, 6575, 7414]
    logged = [0, 0, 0, 0, 2048, 2048, 4096, 4096, 6144]
    reused = [turn(cache, range(length)) for length in prompts]
    assert [ours for row, ours in enumerate(reused, 1) if row != 4] == logged[:3] + logged[4:]
    assert reused[3] == 2048


# Tails: docs/servers.md, section 1.18


@pytest.mark.parametrize(
    ("reused", "prefilled", "marker", "boundaries", "tail"),
    [
        pytest.param(0, 7, 0, (4,), 7, id="T1"),
        pytest.param(0, 8, 0, (4, 8), None, id="T2"),
        pytest.param(6, 5, 0, (8,), 11, id="T3"),
        pytest.param(0, 7, 5, (4,), 5, id="T4"),
        pytest.param(0, 7, 4, (4,), None, id="T5"),
        pytest.param(6, 5, 5, (8,), None, id="T6"),
    ],
)
def test_snapshot_positions(reused, prefilled, marker, boundaries, tail):
    assert tail_position(reused, prefilled, marker, 4) == tail
    prompt = array(range(reused + prefilled + 1))
    spans = tailed().spans(prompt, Match(reused), PromptBoundaries(generation_prompt=marker or None))
    assert all(span.snapshot and span.start % 4 == 0 for span in spans)
    # The state behind the prompt's last token is no part of the prefill.
    ends = [span.end for span in spans if span.end <= reused + prefilled]
    assert ends == sorted([*boundaries, *([tail] if tail else [])])


def tailed(size=4, **settings):
    return PagedCache(size, trimmable=False, tails=True, **settings)


def with_tails(*lengths, tokens=(1, 2, 3, 4, 5, 6)):
    """A cache that stored, for each length, a prompt with its tail there."""
    cache = tailed(named=recipe("test-model"))
    for length in lengths:
        turn(cache, [*tokens[:length], 90, 91], PromptBoundaries(generation_prompt=length))
    return cache


@pytest.mark.parametrize(
    ("lengths", "prompt", "matched", "reused"),
    [
        pytest.param([6], [1, 2, 3, 4, 5, 6, 7, 8], 6, 6, id="TM1"),
        pytest.param([6], [1, 2, 3, 4, 5, 6], 6, 4, id="TM2"),
        pytest.param([6], [1, 2, 3, 4, 5, 9, 7, 8], 4, 4, id="TM3"),
        pytest.param([6], [1, 2, 3, 4, 5], 4, 4, id="TM4"),
        pytest.param([2, 3], [1, 2, 3], 3, 0, id="TM5"),
        pytest.param([2, 3], [1, 2, 9], 2, 2, id="TM6"),
        pytest.param([2, 3], [1, 2, 3, 9, 9], 3, 3, id="TM7"),
    ],
)
def test_tail_lookups(lengths, prompt, matched, reused):
    cache = with_tails(*lengths)
    blocks = cache.lookup(array(prompt))
    assert blocks[-1].end == matched
    found = cache.match(array(prompt))
    assert found.reused == reused == (found.blocks[-1].end if found.blocks else 0)
    named = recipe("test-model")
    tail = named((5, 6), named((1, 2, 3, 4), None))
    assert (tail in cache) is (lengths == [6])


def test_a_clean_append_loses_nothing_and_a_hoist_the_rest():
    cache = make_cache("paged", model_kind="hybrid")
    turn(cache, range(10000), PromptBoundaries(generation_prompt=9996))  # TM8
    assert cache.reusable(10000, 10900) == 9996
    assert (
        turn(cache, [*range(9996), *range(20000, 20904)], PromptBoundaries(generation_prompt=10890)) == 9996
    )
    turn(cache, range(50000, 110000), PromptBoundaries(generation_prompt=59990))  # TM9
    assert cache.reusable(23128, 60100) == 22528
    assert cache.match(array([*range(50000, 73128), *range(36972)])).reused == 22528


def test_blocks_beyond_the_generation_prompt_do_not_replace_the_tail():
    cache = tailed()
    turn(cache, range(10), PromptBoundaries(generation_prompt=7))
    assert cache.reusable(10, 14) == 7
    assert turn(cache, range(14), PromptBoundaries(generation_prompt=13)) == 7
    assert cache.match(array(range(18))).reused == 13
    persisting = tailed()
    turn(persisting, range(10), PromptBoundaries(generation_prompt=7, persists=True))
    assert persisting.match(array(range(14))).reused == 8
    assert persisting.match(array([*range(7), 99])).reused == 7


def test_an_unknown_generation_prompt_leaves_the_tail_before_the_last_token():
    cache = tailed()
    assert cache.spans(array(range(8)), Match(0)) == (TokenRange(0, 4, True), TokenRange(4, 7, True))
    turn(cache, range(8))
    assert cache.match(array(range(9))).reused == 7


def test_a_complete_turn_that_ends_with_a_block_is_kept_whole():
    cache = tailed()
    turn(cache, range(12), PromptBoundaries(prompt_tokens=10, generation_prompt=7))
    assert cache.match(array(range(16))).reused == 12
    cache = tailed()
    turn(cache, range(13), PromptBoundaries(prompt_tokens=10, generation_prompt=7))
    assert cache.match(array(range(16))).reused == 7


def test_a_block_behind_a_tail_starts_on_the_grid():
    cache = tailed()
    turn(cache, range(10), PromptBoundaries(generation_prompt=6))
    ids = array(range(14))
    match = cache.match(ids)
    assert [(block.start, block.end) for block in match.blocks] == [(0, 4), (4, 6)]
    spans = cache.spans(ids, match, PromptBoundaries(generation_prompt=13))
    assert [(span.start, span.end) for span in spans] == [(4, 8), (8, 12), (12, 13)]


def test_a_parent_keeps_its_last_eight_tails():
    cache = tailed(16)
    for length in range(1, 12):
        turn(cache, [*range(length), 90, 91], PromptBoundaries(generation_prompt=length))
    assert len(cache) == MOST_TAILS
    reused = [cache.match(array([*range(length), 99])).reused for length in range(1, 12)]
    assert reused == [0, 0, 0, *range(4, 12)]


def test_a_tail_gives_way_before_its_block_and_is_forgotten():
    cache = tailed(capacity_bytes=8, sizes=Sizes(1))
    turn(cache, [1, 2, 3, 4, 5, 6, 9, 9], PromptBoundaries(generation_prompt=6))
    turn(cache, [7, 7, 7], PromptBoundaries(generation_prompt=2))
    assert cache.match(array([1, 2, 3, 4, 5, 6, 7])).reused == 6
    turn(cache, [8, 8, 8, 8], PromptBoundaries(generation_prompt=3))
    assert cache.match(array([7, 7, 9])).reused == 0
    turn(cache, [5, 5, 5, 5], PromptBoundaries(generation_prompt=3))
    assert cache.statistics.bytes <= 8


# Against brute force

conversations = st.lists(
    st.tuples(
        st.lists(st.integers(0, 1), min_size=1, max_size=14), st.none() | st.integers(0, 14), st.booleans()
    ),
    min_size=1,
    max_size=10,
)


@settings(max_examples=300, deadline=None)
@given(conversations, st.integers(1, 4), st.sampled_from(["drop-block", "prefill"]))
def test_the_furthest_stored_position_counts(prompts, size, whole):
    cache = tailed(size, full_hit=whole)
    blocks, ends = set(), set()
    for tokens, marker, persists in prompts:
        length = len(tokens)
        chain = 0
        while tuple(tokens[: chain + size]) in blocks and chain + size <= length:
            chain += size
        found = [
            end for end in range(chain + 1, length + 1) if end - chain < size and tuple(tokens[:end]) in ends
        ]
        expected = max(found, default=chain)
        if expected == length:
            expected = 0 if whole == "prefill" else (chain if found else chain - size)
        marker = marker if marker is not None and marker < length else 0
        marks = PromptBoundaries(generation_prompt=marker or None, persists=persists)
        assert turn(cache, tokens, marks) == expected
        tail = tail_position(expected, length - 1 - expected, marker, size)
        stored = length if persists or 0 < marker <= expected else marker or length - 1
        blocks |= {tuple(tokens[:end]) for end in range(size, stored + 1, size)}
        if tail:
            ends.add(tuple(tokens[:tail]))
        if len(ends) > MOST_TAILS:
            return


@given(
    st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=14), min_size=1, max_size=10), st.integers(1, 3)
)
def test_without_tails_the_last_snapshot_counts(prompts, size):
    cache = PagedCache(size, trimmable=False)
    stored = []
    for tokens in prompts:
        ids = array(tokens)
        shared = max((common_prefix_ids(ids, other) for other in stored), default=0)
        expected = shared // size * size
        if expected == len(tokens):
            expected = max(0, expected - size)
        assert cache.reusable(shared, len(tokens)) == expected
        assert turn(cache, tokens) == expected
        stored.append(ids)


@given(conversations, st.integers(1, 4), st.booleans())
def test_restored_payloads_are_the_states_of_the_prompts_own_tokens(prompts, size, tails):
    cache = PagedCache(size, trimmable=False, tails=tails)
    for tokens, marker, persists in prompts:
        ids = array(tokens)
        marks = PromptBoundaries(generation_prompt=marker, persists=persists)
        match = cache.match(ids)
        at = 0
        for block in match.blocks:
            assert block.start == at and block.payload.tokens == tuple(tokens[: block.end])
            at = block.end
        assert at == match.reused < len(tokens) and all(block.snapshot for block in match.blocks[-1:])
        spans = cache.spans(ids, match, marks)
        assert all(span.end > match.reused and span.snapshot for span in spans)
        payloads = [State(tuple(tokens[: span.end])) for span in spans]
        cache.store(ids, payloads, match=match, marks=marks)


def test_settings_that_contradict_each_other():
    with pytest.raises(ValueError, match="need no tails"):
        PagedCache(4, tails=True)
    with pytest.raises(ValueError, match="cannot give up one token"):
        PagedCache(4, trimmable=False, full_hit="trim")


def test_tails_belong_to_the_latest_version_and_layers_that_cannot_be_cut():
    assert all(make_cache("paged", model_kind=kind).tails for kind in ("hybrid", "rotating:128"))
    assert not make_cache("paged", model_kind="hybrid", options={"version": "sept"}).tails
    assert not make_cache("paged").tails
