"""Rapid-MLX's cache; the server's own lookup was run beside it (docs/caches.md)."""

from hypothesis import given
from token_ids import HYBRID, TEN, array, common, conversations, turn
from tplaudit.probes.caches.base import Match, PromptBoundaries
from tplaudit.probes.caches.hashes import chain, recipe
from tplaudit.probes.caches.servers.rapid_mlx import ROOT, RapidMlxCache


@given(conversations)
def test_rapid_mlx_shares_every_token_of_plain_layers(prompts):
    cache = RapidMlxCache()
    for number, tokens in enumerate(prompts):
        shared = max((common(tokens, other) for other in prompts[:number]), default=0)
        assert turn(cache, tokens) == min(shared, len(tokens) - 1) == cache.reusable(shared, len(tokens))


def test_rapid_mlx_goes_back_to_recurrent_checkpoints():
    cache = RapidMlxCache(HYBRID)
    # A checkpoint is eight tokens before a turn's end; the prompt is stored, too, where that is far from it.
    marks = PromptBoundaries(prompt_tokens=9000, turn_end=5008)
    spans = cache.spans(array(range(9100)), Match(0), marks)
    assert [span.end for span in spans] == [2048, 4096, 5000, 7048, 9000, 9096, 9100]
    turn(cache, range(9100), marks)
    # Four of five are left of the whole: 5000 is the anchor, 9096 the newest, 2048 close behind another.
    assert [cache.reusable(at, 9200) for at in (4095, 4096, 5000, 7048, 9096)] == [0, 4096, 5000, 7048, 9096]
    # The sequence that ends at the message start still has the first one.
    reused = {
        at: cache.match(array([*range(at), -1, -2])).reused for at in (3000, 4999, 5000, 7048, 9097, 9100)
    }
    assert reused == {3000: 2048, 4999: 4096, 5000: 5000, 7048: 7048, 9097: 9096, 9100: 9100}
    # A whole prompt cannot give up its last token; the shorter sequence counts.
    assert cache.match(array(range(9100))).reused == 9000
    assert len(cache) == 3


def test_rapid_mlx_keeps_the_prompt_without_its_generation_prompt():
    cache = RapidMlxCache(HYBRID)
    turn(cache, range(900), PromptBoundaries(prompt_tokens=800, turn_end=790))
    assert [entry.length for entry in cache._entries] == [782, 900]
    assert cache.match(array([*range(790), -1, -2])).reused == 782
    # Where nothing tells a turn's end, the prompt itself is kept.
    cache = RapidMlxCache(HYBRID)
    turn(cache, range(900), PromptBoundaries(prompt_tokens=800))
    assert [entry.length for entry in cache._entries] == [800, 900]


def test_rapid_mlx_stops_where_a_prompt_parts_from_a_stored_one():
    cache = RapidMlxCache(HYBRID)
    cache.stride = 5000
    turn(cache, range(3000))
    assert turn(cache, [*range(1500), -1]) == 0
    assert turn(cache, [*range(1500), -2]) == 1500
    assert turn(cache, [*range(1000), -3]) == 0
    assert turn(cache, [*range(1000), -4]) == 0


def test_rapid_mlx_limits_what_cannot_be_cut():
    cache = RapidMlxCache(HYBRID)
    cache.max_uncut = 2
    for first in range(4):
        turn(cache, [first, 5, 6])
    assert [cache.match(array([first, 5, 6, 7])).reused for first in range(4)] == [0, 0, 3, 3]
    assert len(RapidMlxCache(HYBRID)) == 0


def test_names_of_the_paged_caches_blocks():
    assert [name.hex() for name in chain(TEN, 4, named=recipe(root=ROOT))] == [
        "fdeb4d0ebec4590b336acc7c01ac13430956d7db988b4ee4f24b494bda987406",
        "d9c8514adf3881810324944386ccd67083ff7c5d1f8804132da6563440653fd3",
    ]
