"""vllm-mlx's caches; the server's own lookups were run beside them (docs/caches.md)."""

from token_ids import HYBRID, TEN, array, turn
from tplaudit.probes.caches.base import PromptBoundaries
from tplaudit.probes.caches.hashes import chain, recipe
from tplaudit.probes.caches.servers.vllm_mlx import (
    ROOT,
    VllmMlxCache,
    VllmMlxLegacyCache,
    VllmMlxSimpleCache,
)
from tplaudit.probes.conversation import Message, Request
from tplaudit.probes.models.layers import Layers


def test_vllm_mlx_prefers_a_whole_sequence_and_prefills_a_whole_prompt_again():
    cache = VllmMlxCache()
    cache.min_tokens = 2
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
    turn(cache, range(400), PromptBoundaries(prompt_tokens=300))
    # The first token of the reply has been computed by then.
    assert cache.match(array(range(350))).reused == 301
    turn(cache, range(3000))
    assert cache.match(array(range(5000))).reused == 301
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


def simple(*prompts, layers=None):
    """Return what a simple engine reuses of prompts, each with the length of its system prefix."""
    cache = VllmMlxSimpleCache(layers or Layers())
    found = []
    for prefix, tokens in prompts:
        marks, ids = PromptBoundaries(system_prefix=prefix), array(tokens)
        expected = cache.probe(ids, marks)
        match = cache.match(ids, marks)
        assert match.reused == expected
        cache.store(ids, match=match, marks=marks)
        found.append(match.reused)
    return found


def test_the_simple_engine_keeps_the_state_behind_a_system_prefix_alone():
    first, second = range(100), [*range(40), *range(-60, 0)]
    for layers in (Layers(), HYBRID):
        assert simple((40, first), (40, [*range(150)]), (40, second), layers=layers) == [0, 40, 40]
    # Another prefix is another state, however much the prompts share; without one there is nothing.
    assert simple((40, first), (30, second), (0, first), (40, first)) == [0, 0, 0, 40]
    assert simple((40, first), (40, first), layers=Layers(window=20)) == [0, 0]
    # Four are kept; a use counts.
    prompts = [(10, [at, *range(100)]) for at in range(5)]
    assert simple(*prompts[:4], prompts[0], prompts[4], prompts[0], prompts[1]) == [0, 0, 0, 0, 10, 0, 10, 0]
    assert VllmMlxSimpleCache().reusable(50, 100) == 0


def test_the_simple_engine_looks_at_streams_and_requests_with_tools():
    def wants(tools=None, **fields):
        request = Request((Message({"role": "user", "content": "hi"}, 0),), tools, fields=fields)
        return VllmMlxSimpleCache().wants_system_prefix(request)

    assert wants() and wants(stream=True, model="m") and wants(({"name": "f"},), stream=False)
    assert not wants(stream=False) and not wants(model="m") and not wants((), stream=False)
    assert not wants(stream=True, stop=["x"]) and not wants(stream=True, top_k=20)
    assert wants(stream=True, stop=[], top_k=0, repetition_penalty=1.0)


def test_names_of_the_paged_caches_blocks():
    assert [name.hex() for name in chain(TEN, 4, named=recipe(root=ROOT))] == [
        "fb1f01c655d421ed286c5d087dc320486dfa089aa6c19f7b664371670b7fa1dc",
        "51e861c22a1c6bf300d5d924135c8dcc9a57e0e0b02101847d11a7d712adbcc6",
    ]
