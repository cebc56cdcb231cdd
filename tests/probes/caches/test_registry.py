"""Names of caches: each policy's, what they make, and what is refused."""

import pytest
from commands import heavy_modules
from token_ids import array
from tplaudit.probes.caches.registry import make_cache, names, server_cache
from tplaudit.probes.errors import UsageError
from tplaudit.probes.models.sizes import Sizes
from tplaudit.probes.policies.registry import POLICIES, parse_policy


@pytest.mark.parametrize("kind", POLICIES.values(), ids=lambda kind: kind.name)
@pytest.mark.parametrize("model_kind", ["plain", "rotating:256", "hybrid"])
def test_every_policys_cache_can_be_made(kind, model_kind):
    cache = make_cache(kind.cache, model_kind=model_kind)
    cache.store(array(range(3000)))
    found = cache.match(array([*range(2999), -1, -2]))
    assert 0 <= found.reused < 3001
    assert cache.kind == kind.cache.partition(":")[0]


@pytest.mark.parametrize(
    ("name", "model_kind", "kind", "block_size"),
    [
        ("paged", "plain", "paged", 256),
        ("paged:64", "plain", "paged", 64),
        ("paged:2048", "plain", "paged", 2048),
        ("paged:64", "hybrid", "paged", 2048),
        ("fusion-mlx", "plain", "fusion-mlx", 64),
        ("fusion-mlx", "hybrid", "fusion-mlx", 2048),
        ("fusion-mlx", "rotating:128", "fusion-mlx", 512),
        ("flyto-mlx", "plain", "flyto-mlx", 256),
        ("flyto-mlx", "hybrid", "flyto-mlx", 2048),
        ("mtplx", "hybrid", "mtplx", 1),
        ("rapid-mlx:paged", "plain", "rapid-mlx:paged", 64),
        ("vllm-mlx", "plain", "vllm-mlx", 1),
        ("vllm-mlx:batched", "plain", "vllm-mlx:batched", 1),
        ("vllm-mlx:paged", "plain", "vllm-mlx:paged", 64),
        ("vllm-mlx:legacy", "plain", "vllm-mlx:legacy", 1),
        ("mlx-vlm", "plain", "mlx-vlm", 16),
        ("mlx-vlm", "hybrid", "mlx-vlm", 1),
        ("vllm", "plain", "vllm", 16),
        ("vllm:32", "plain", "vllm", 32),
        ("llama.cpp", "hybrid", "llama.cpp", 1),
        ("sglang", "plain", "sglang", 1),
        ("ollama", "rotating:512", "ollama", 1),
        ("mlx-lm", "plain", "mlx-lm", 1),
        ("rapid-mlx", "plain", "rapid-mlx", 1),
    ],
)
def test_names(name, model_kind, kind, block_size):
    cache = make_cache(name, model_kind=model_kind)
    assert (cache.kind, cache.block_size) == (kind, block_size)
    assert cache.statistics.blocks == 0


@pytest.mark.parametrize("name", ["", "pagd", "paged:", "paged:0", "paged:x", "mlx-lm:16", "ollama:legacy"])
def test_unknown_names(name):
    with pytest.raises(UsageError, match="choose from paged, flyto-mlx, fusion-mlx, mlx-lm"):
        make_cache(name)


def test_what_does_not_go_together():
    with pytest.raises(UsageError, match="has no blocks"):
        make_cache("sglang", block_size=16)
    assert make_cache("sglang", block_size=1).block_size == 1
    with pytest.raises(UsageError, match="use the server's default, rapid-mlx"):
        make_cache("rapid-mlx:paged", model_kind="hybrid")


@pytest.mark.parametrize("name", ["vllm", "mlx-vlm"])
def test_a_whole_prompt_gives_up_its_last_block(name):
    cache = make_cache(name)
    cache.store(array(range(64)))
    assert cache.match(array(range(64))).reused == cache.reusable(64, 64) == 48
    assert cache.match(array(range(65))).reused == cache.reusable(64, 65) == 64
    assert cache.reusable(64, 70) == 64 and cache.reusable(16, 16) == 0


def test_the_versions_of_omlx_differ_where_all_is_there():
    reused = {}
    for version in ("0.5.3", "sept", "latest"):
        cache = make_cache("paged", model_kind="hybrid", options={"version": version})
        cache.store(array(range(6000)))
        reused[version] = [cache.match(array(range(length))).reused for length in (4096, 5000, 6500)]
    assert reused == {"0.5.3": [0, 4096, 4096], "sept": [2048, 4096, 4096], "latest": [2048, 4096, 5999]}


def test_blocks_of_case_28(case_28):
    granularity, prompts = case_28
    for pair in granularity["pairs"]:
        for size, expected in pair["reused_by_block"].items():
            cache = make_cache("paged", block_size=int(size))
            assert cache.reusable(pair["shared_chars"], 1000) == expected
            cache.store(prompts[pair["earlier"]])
            assert cache.match(prompts[pair["later"]]).reused == expected


def test_capacity_reaches_every_cache():
    for name in names():
        cache = make_cache(name, capacity_bytes=0, sizes=Sizes(1))
        cache.store(array(range(3000)))
        if name not in ("llama.cpp", "vllm-mlx"):  # slots do not count, and a prompt alone leaves nothing
            assert cache.statistics.bytes == 0
            assert cache.statistics.refused_blocks + cache.statistics.evicted_blocks > 0


def test_the_registry_itself_loads_nothing_heavy():
    assert heavy_modules("import tplaudit.probes.caches.registry") == set()


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
        ("vllm-mlx", "vllm-mlx", 1),
        ("vllm-mlx:engine=batched", "vllm-mlx:batched", 1),
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


@pytest.mark.parametrize(("policy", "slots"), [("llama-cpp", 4), ("llama-cpp:slots=1", 1), ("lm-studio", 1)])
def test_llama_cpp_has_the_slots_that_are_asked_for(policy, slots):
    cache = server_cache(parse_policy(policy))
    assert len(cache._slots) == slots
