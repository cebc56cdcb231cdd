"""MTPLX's session bank."""

import numpy as np
import pytest
from token_ids import HYBRID, turn
from tplaudit.probes.caches.base import Match, PromptBoundaries
from tplaudit.probes.caches.servers.mtplx import MtplxCache
from tplaudit.probes.models.layers import Layers


def reused(cache, *parts):
    return cache.match(np.concatenate([np.array(part, np.int32) for part in parts])).reused


def test_what_is_only_appended_to_goes_on_at_its_end_whatever_its_length():
    for layers in (Layers(), HYBRID):
        cache = MtplxCache(layers)
        turn(cache, range(5000), PromptBoundaries(prompt_tokens=4900))
        assert reused(cache, range(5000), [-1]) == cache.reusable(5000, 5001) == 5000


def test_plain_layers_share_every_token_from_512_on_and_64_near_the_end():
    cache = MtplxCache()
    turn(cache, range(5000))
    assert [reused(cache, range(at), [-1]) for at in (511, 512, 4991)] == [0, 512, 4991]
    assert [cache.reusable(at, 6000) for at in (511, 512, 4991)] == [0, 512, 4991]
    short = MtplxCache()
    turn(short, range(100))
    assert [reused(short, range(at), [-1]) for at in (91, 92)] == [0, 92]


def test_recurrent_layers_go_back_to_the_end_of_a_chunk():
    """Lengths of youssofal/MTPLX#446: a prompt that parts early gets a multiple of 2,048 back."""
    cache = MtplxCache(HYBRID)
    cache.store(np.arange(70_000, dtype=np.int32))
    assert reused(cache, range(19_000), range(-70_000, 0)) == 18_432
    assert reused(cache, range(16_000), range(-70_000, 0)) == 14_336
    assert reused(cache, range(69_990), [-1]) == 70_000 - 1 - 64
    assert reused(cache, range(600), [-1]) == 0


def test_chunks_are_counted_from_where_the_prefill_began():
    cache = MtplxCache(HYBRID)
    turn(cache, range(3000))
    turn(cache, range(9000))
    assert [reused(cache, range(at), [-1]) for at in (5047, 5048, 7096)] == [3000, 5048, 7096]
    # The end of the shorter sequence stays a place to go on from.
    assert reused(cache, range(3500), [-1]) == 3000


@pytest.mark.parametrize(
    ("prompt", "positions"),
    [(200, []), (300, [256]), (322, [257]), (400, [335]), (2049, [1984]), (2500, [2048, 2435])],
)
def test_the_last_state_before_a_prompts_end(prompt, positions):
    cache = MtplxCache(HYBRID)
    spans = cache.spans(np.arange(prompt), Match(0))
    assert [span.end for span in spans] == [*positions, prompt]


def test_a_prompt_of_many_new_tokens_is_stored_by_itself_too():
    cache = MtplxCache(HYBRID)
    cache.store(np.arange(1200), marks=PromptBoundaries(prompt_tokens=1100))
    assert reused(cache, range(1100), [-1]) == 1100
    other = MtplxCache(HYBRID)
    other.store(np.arange(1100), marks=PromptBoundaries(prompt_tokens=1000))
    assert reused(other, range(1000), [-1]) == 1000 - 1 - 64
