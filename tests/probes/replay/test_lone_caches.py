from __future__ import annotations

import numpy as np
from tplaudit.probes.caches.base import PrefixCache
from tplaudit.probes.caches.registry import make_cache
from tplaudit.probes.replay.lone_caches import Alone, LoneCaches, Step

SEQUENCES = {turn: np.arange(100 * turn, dtype=np.int32) for turn in range(1, 5)}


def _caches(name: str = "paged:32") -> LoneCaches:
    def new() -> PrefixCache:
        return make_cache(name)

    return LoneCaches(new, SEQUENCES.__getitem__)


def _store(caches: LoneCaches, turn: int, predecessor: int | None) -> None:
    ids = SEQUENCES[turn]
    caches.follow(predecessor, (), ids, 0)
    caches.store(predecessor, Step(turn, len(ids)), ids, ids)


def test_a_conversation_that_begins_has_nothing() -> None:
    assert _caches().follow(None, (), SEQUENCES[1], 100) == Alone(0, 0)


def test_what_the_predecessor_gives_by_the_caches_own_rule() -> None:
    caches = _caches()
    _store(caches, 1, None)
    # 100 tokens are stored, 3 blocks of 32; what is kept of them counts for an unaltered prompt.
    assert caches.follow(1, (), SEQUENCES[2], 100) == Alone(96, 96)
    assert caches.follow(1, (), SEQUENCES[2], 70) == Alone(96, 64)
    edited = SEQUENCES[2].copy()
    edited[40] = 7
    assert caches.follow(1, (), edited, 100) == Alone(32, 96)


def test_a_chain_is_made_again_where_another_request_went_on() -> None:
    caches = _caches("llama.cpp")
    _store(caches, 1, None)
    _store(caches, 2, 1)
    _store(caches, 3, 2)
    chain = (Step(1, 100), Step(2, 200))
    assert caches.follow(2, chain, SEQUENCES[4], 200) == Alone(200, 200)


def test_a_cache_without_limits_keeps_every_sequence() -> None:
    cache = make_cache("mlx-lm")
    cache.lift_limits()
    for number in range(30):
        ids = np.arange(1000 * number, 1000 * number + 50, dtype=np.int32)
        cache.store(ids, match=cache.match(ids))
    assert cache.probe(np.arange(0, 60, dtype=np.int32)) >= 49
    assert cache.statistics.evicted_blocks == 0


def test_a_probe_leaves_everything_as_it_is() -> None:
    for name in ("paged:32", "llama.cpp", "mlx-lm", "rapid-mlx", "vllm-mlx", "sglang", "ollama", "mtplx"):
        cache = make_cache(name)
        ids = SEQUENCES[4]
        cache.store(ids, match=cache.match(ids))
        before = cache.statistics
        cache.probe(np.full(500, 3, np.int32))
        assert cache.statistics == before
        assert cache.probe(np.append(ids, ids)) == cache.match(np.append(ids, ids)).reused
