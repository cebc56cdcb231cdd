"""Names of blocks in other servers: the digests that their own functions gave."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from tplaudit.probes.caches.block_hash_schemes import (
    apc_hash,
    apc_recipe,
    token_digest,
    vllm_hash,
    vllm_none_hash,
    vllm_recipe,
)
from tplaudit.probes.caches.hashes import FUSION_ROOT, RAPID_ROOT, VLLM_MLX_ROOT, chain, recipe
from tplaudit.probes.caches.registry import make_cache

TEN = np.arange(1, 11, dtype=np.int32)
DIGESTS = {
    ("fusion-mlx", "M", FUSION_ROOT): [
        "74d61f955cf57abfe2a708dca429647ff3b92f51c53b67653e472ac97daed4e8",
        "a5880c8949c28f992601d384212ed48bc0370b8517168ae48e3d99c7e52d53a0",
    ],
    ("rapid-mlx", None, RAPID_ROOT): [
        "fdeb4d0ebec4590b336acc7c01ac13430956d7db988b4ee4f24b494bda987406",
        "d9c8514adf3881810324944386ccd67083ff7c5d1f8804132da6563440653fd3",
    ],
    ("vllm-mlx", None, VLLM_MLX_ROOT): [
        "fb1f01c655d421ed286c5d087dc320486dfa089aa6c19f7b664371670b7fa1dc",
        "51e861c22a1c6bf300d5d924135c8dcc9a57e0e0b02101847d11a7d712adbcc6",
    ],
}


@pytest.mark.parametrize("server", DIGESTS, ids=lambda server: server[0])
def test_chains_with_other_roots(server):
    _, model_name, root = server
    names = chain(TEN, 4, named=recipe(model_name, root))
    assert [name.hex() for name in names] == DIGESTS[server]


@pytest.mark.parametrize(
    ("tokens", "digest"),
    [
        (range(1, 5), "bac02613b6f9456c"),
        (range(1, 9), "67949fdbd603ce8f"),  # cumulative: Rapid-MLX
        (range(5, 9), "8ce7e38f31f82c24"),  # alone: vllm-mlx's legacy lookup
    ],
)
def test_token_digests(tokens, digest):
    assert token_digest(tuple(tokens)) == digest


def test_apc():
    first = apc_hash((1, 2, 3, 4))
    assert (first, apc_hash((5, 6, 7, 8), first)) == (172107349397897382, 1905236465778937338)
    names = chain(TEN, 4, named=apc_recipe)
    assert [int.from_bytes(name, "little", signed=True) for name in names] == [
        first,
        apc_hash((5, 6, 7, 8), first),
    ]
    assert apc_hash((1, 2, 3, 4), extra=1) != first


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the digests are of Python 3.11's pickle")
def test_vllm():
    none_hash = vllm_none_hash("0")
    first = "762b2e7e1520febd3a0aedb7358e8602facf3924440e18538fce057e23bae91d"
    second = "9e62b5a7ec298f33cb4c7d9e00b659874bb2432d23ad6879ad1746592a2b036b"
    assert none_hash.hex() == "1973e23848344dc43a988a9b478663803cfffe1243480253f9a3cf004b14aa7c"
    assert vllm_hash((1, 2, 3, 4), none_hash).hex() == first
    assert [name.hex() for name in chain(TEN, 4, named=vllm_recipe("0"))] == [first, second]


@pytest.mark.parametrize("name", ["fusion-mlx", "rapid-mlx:paged", "vllm-mlx:paged", "mlx-vlm", "vllm"])
def test_each_cache_uses_its_servers_recipe(name):
    recipes = {
        "fusion-mlx": recipe(root=FUSION_ROOT),
        "rapid-mlx:paged": recipe(root=RAPID_ROOT),
        "vllm-mlx:paged": recipe(root=VLLM_MLX_ROOT),
        "mlx-vlm": apc_recipe,
        "vllm": vllm_recipe(),
    }
    cache = make_cache(name, block_size=4)
    cache.store(TEN)
    assert [block.name for block in cache.match(TEN).blocks] == [*chain(TEN, 4, named=recipes[name])]
