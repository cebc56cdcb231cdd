"""Which cache a policy is replayed against."""

from __future__ import annotations

import pytest
from tplaudit.probes.caches.server_cache import server_cache
from tplaudit.probes.policies.registry import POLICIES, parse_policy


@pytest.mark.parametrize(
    ("policy", "kind", "block"),
    [
        ("as-is", "paged", 256),
        ("omlx", "paged", 256),
        ("fusion-mlx", "fusion-mlx", 64),
        ("flyto-mlx", "flyto-mlx", 256),
        ("mtplx", "mtplx", 1),
        ("vllm", "vllm", 16),
        ("mlx-vlm", "mlx-vlm", 16),
        ("rapid-mlx", "rapid-mlx", 1),
        ("lm-studio", "llama.cpp", 1),
    ],
)
def test_a_policy_has_its_servers_cache(policy, kind, block):
    cache = server_cache(parse_policy(policy))
    assert (cache.kind, cache.block_size) == (kind, block)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_given_size_makes_a_paged_cache_of_any_policy(policy):
    cache = server_cache(parse_policy(policy), block_size=32)
    assert (cache.kind, cache.block_size) == ("paged", 32)


@pytest.mark.parametrize("kind", ["plain", "hybrid", "rotating:40", "chunked:64", "recurrent"])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policys_cache_takes_every_kind_of_model(policy, kind):
    assert server_cache(parse_policy(policy), model_kind=kind).reusable(0, 1000) == 0


def test_the_version_of_omlx_is_its_caches():
    for version, expected in (("0.5.3", 0), ("sept", 2048)):
        cache = server_cache(parse_policy(f"omlx:version={version}"), model_kind="hybrid")
        assert cache.reusable(4096, 4096) == expected


@pytest.mark.parametrize("policy", ["flyto-mlx", "fusion-mlx"])
def test_servers_that_took_over_an_earlier_omlx(policy):
    cache = server_cache(parse_policy(policy), model_kind="hybrid")
    assert cache.reusable(4096, 4096) == 0
    assert cache.tails is False


def test_another_servers_version_is_no_version_of_omlx():
    assert server_cache(parse_policy("vllm:version=2026-06-02")).kind == "vllm"
