"""mlx-lm's prompt cache, beside the installed class itself."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import LRUPromptCache
from token_ids import HYBRID, array
from tplaudit.probes.caches.base import Match, PromptBoundaries
from tplaudit.probes.caches.servers.mlx_lm import ENTRY_KINDS, MlxLmCache, segments
from tplaudit.probes.models.layers import Layers
from tplaudit.probes.models.sizes import Sizes
from tplaudit.probes.tokenization.token_range import TokenRange


@dataclass
class Layer:
    """Stands in for one of mlx-lm's cache objects."""

    offset: int
    trimmable: bool
    bytes_per_token: int = 1

    @property
    def nbytes(self):
        return self.offset * self.bytes_per_token

    def is_trimmable(self):
        return self.trimmable

    def trim(self, count):
        self.offset -= count
        return count


class Simple(MlxLmCache):
    """Stores each sequence as it is, as one kind after another is asked for."""

    next_kind = "assistant"

    def _ends(self, length, reused, marks):
        return ((length, self.next_kind),)


def both(layers, max_entries=10, capacity_bytes=None):
    real = LRUPromptCache(max_entries, capacity_bytes or 1 << 63)
    cache = Simple(layers, sizes=Sizes(1), capacity_bytes=capacity_bytes)
    cache.max_entries = max_entries
    return real, cache


def insert(real, cache, tokens, kind="assistant"):
    real.insert_cache(
        "m", list(tokens), [Layer(len(tokens), cache.layers.sliceable_at(len(tokens)))], cache_type=kind
    )
    cache.next_kind = kind
    cache.store(array(tokens))


def fetched(real, tokens):
    found, rest = real.fetch_nearest_cache("m", list(tokens))
    if found is not None:
        assert found[0].offset == len(tokens) - len(rest)
    return len(tokens) - len(rest)


@pytest.mark.parametrize(
    ("query", "trimmable", "not_trimmable"),
    [
        ([1, 2, 3, 4, 5, 6], 6, 6),
        ([1, 2, 3, 4, 5, 6, 7], 6, 6),
        ([1, 2, 3, 4, 9, 9], 4, 3),
        ([1, 2, 3, 4], 3, 3),
        ([1, 2], 1, 0),
        ([1, 9], 1, 0),
        ([8], 0, 0),
        ([1, 2, 3], 2, 3),
    ],
    ids=[f"M{number}" for number in range(1, 9)],
)
def test_known_lookups(query, trimmable, not_trimmable):
    for layers, expected, left in ((Layers(), trimmable, 1), (HYBRID, not_trimmable, 2)):
        real, cache = both(layers)
        for tokens in ([1, 2, 3], [1, 2, 3, 4, 5, 6]):
            insert(real, cache, tokens)
        assert cache.fetch(array(query)) == fetched(real, query) == expected
        assert len(cache) == len(real) == left
        assert cache.match(array(query)).reused < len(query)


steps = st.lists(
    st.tuples(
        st.booleans(), st.lists(st.integers(0, 1), min_size=1, max_size=7), st.sampled_from(ENTRY_KINDS)
    ),
    max_size=16,
)


@settings(max_examples=300, deadline=None)
@given(
    steps,
    st.sampled_from([Layers(), HYBRID, Layers(window=4)]),
    st.integers(1, 4),
    st.none() | st.integers(3, 20),
)
def test_it_does_what_the_installed_class_does(steps, layers, max_entries, capacity):
    real, cache = both(layers, max_entries, capacity)
    for is_query, tokens, kind in steps:
        if is_query:
            assert cache.fetch(array(tokens)) == fetched(real, tokens)
            cache.match(array(tokens))
        else:
            insert(real, cache, tokens, kind)
        assert len(cache) == len(real)
        assert cache.statistics.bytes == real.nbytes


def test_what_can_be_gone_on_from_needs_one_token():
    cache = MlxLmCache(HYBRID)
    cache.last_token_apart = False
    cache.store(array([1, 2, 3]))
    cache.store(array([1, 2, 3, 4, 5, 6]))
    assert cache.fetch(array([1, 2, 3, 4, 5, 6])) == 6
    # The server fails on such a prompt; the next shorter sequence is what a model could go on from.
    assert cache.match(array([1, 2, 3, 4, 5, 6])).reused == 3
    plain = MlxLmCache()
    plain.store(array([1, 2, 3]))
    assert plain.match(array([1, 2, 3])).reused == 2


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        (PromptBoundaries(), [(20, "user")]),
        (PromptBoundaries(ends_in_user=False, system_end=5, think_start=18), [(20, "assistant")]),
        (PromptBoundaries(system_end=5), [(5, "system"), (20, "user")]),
        (PromptBoundaries(system_end=5, think_start=18), [(5, "system"), (18, "user"), (20, "assistant")]),
        (PromptBoundaries(think_start=8), [(20, "user")]),
        (PromptBoundaries(think_start=9), [(9, "user"), (20, "assistant")]),
        (PromptBoundaries(system_end=20), [(20, "user")]),
        (PromptBoundaries(system_end=19, think_start=18), [(19, "system"), (20, "assistant")]),
        (PromptBoundaries(think_start=0), [(20, "user")]),
    ],
)
def test_segments(marks, expected):
    assert list(segments(20, marks)) == expected


def test_states_are_copied_at_the_ends_of_segments_and_before_the_last_token():
    cache = MlxLmCache(HYBRID)
    ids, marks = array(range(24)), PromptBoundaries(prompt_tokens=20, system_end=5, think_start=18)
    spans = cache.spans(ids, Match(0), marks)
    assert spans == tuple(TokenRange(*ends, True) for ends in [(0, 5), (5, 18), (18, 19), (19, 24)])
    cache.store(ids, marks=marks)
    assert [cache.match(array([*range(at), 99, 99])).reused for at in (4, 5, 17, 18, 19, 23, 24)] == [
        *(0, 5, 5, 18, 19, 19, 24)
    ]
    taken = cache.match(array([*range(18), 99, 98, 97]))
    assert [(block.start, block.end) for block in taken.blocks] == [(0, 5), (5, 18)]
    assert cache.reusable(18, 21) == 19 - 1


def test_a_turn_that_ends_in_a_tool_result_keeps_only_its_end():
    cache = MlxLmCache(HYBRID)
    cache.last_token_apart = False
    cache.store(array(range(24)), marks=PromptBoundaries(prompt_tokens=20, ends_in_user=False, system_end=5))
    assert cache.match(array([*range(20), 99])).reused == 0
    assert cache.match(array(range(30))).reused == 24
    apart = MlxLmCache(HYBRID)
    apart.store(array(range(24)), marks=PromptBoundaries(prompt_tokens=20, ends_in_user=False, system_end=5))
    assert apart.match(array([*range(20), 99])).reused == 19
