"""Block hashes: known values, and chains that continue one another."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from token_ids import TEN
from tplaudit.probes.caches.hashes import chain, recipe
from tplaudit.probes.caches.registry import make_cache
from tplaudit.probes.caches.servers import fusion_mlx, mlx_vlm, rapid_mlx, vllm, vllm_mlx

QWEN = "Qwen3.8-27B-6bit"

# name: (model name, parent's name, tokens), digest
VECTORS = {
    "H1": (("", None, (1, 2, 3, 4)), "2feaaca2a94b2a2dee4d7445e77309c19ddacd3b61c00b07a3517825a3661443"),
    "H2": (("", "H1", (5, 6, 7, 8)), "1330432351571190421df806ea0ea315986bfa775bd95c78858c8aeb926b4e1f"),
    "H3": (("", "H1", (5, 99, 7, 8)), "746e8f826129024e6132f3a15d528051875e3487d8d930c7b4f4ee0d154475ec"),
    "H4": ((QWEN, None, (1, 2, 3, 4)), "5ce0d1089b4f0caad70e4564f13b489a382b346d8b90758bed2ee23064a22959"),
    "H5": ((QWEN, "H4", (5, 6, 7, 8)), "2d1d7dc9eca17060368c0bb617affc50129482d13aaa38bd3ea4d1a618a95ceb"),
    "H7": (("", None, (7,)), "7bd0adb0e9df32e02bdf461f01436c3f8a589809ae716cc32004b029458872a5"),
    "H8": ((QWEN, None, range(2048)), "80b3bed3031d7860952627ee85241b92307aa568a7080242cb8c7962d8e38dbc"),
    "H9": (
        (QWEN, "H8", range(2048, 4096)),
        "2f147c4a735a1825b2a61f0b725092f177fc4186c01d10150123825cea5e014a",
    ),
    "H10": (("", None, range(256)), "a93521eefc77abf016e46d475bfa98c6d418432e854fb29bd791cae8984ebc70"),
    "H11": (("", "H10", range(256, 512)), "7372f20d118ca8a9263de827312552376faba68058f5f835720d70e5653c1e1d"),
    "H12": (
        ("test-model", None, (1, 2, 3, 4)),
        "eccd492fb02022cf654b44da617cf8fb3caa40d7ae912bc473a99850f294f768",
    ),
    "H13": (
        ("test-model", "H12", (5, 6)),
        "d495746112d62dd162b9275c2f442d7b7bd5fd3540e72d1890621c7f95e70dd0",
    ),
    "H14": (
        ("test-model", "H12", (5, 6, 7)),
        "2c954679d33ec71d9f70e2d8c314257bd7aeabdb1bbcb08ef9804ccb2151d9eb",
    ),
    "H15": (("test-model", None, (1, 2)), "478547c16b227efb55114e3ce31d52ad64424d58445ef9596f8098c3f13bfd79"),
    "H16": (
        ("test-model", None, (1, 2, 3)),
        "789ef7441e01cd1b2ab4ee6c04a6cc0373f493e3b551610f4a627f74547a42dc",
    ),
}


@pytest.mark.parametrize("vector", VECTORS)
def test_known_values(vector):
    (model_name, parent, tokens), digest = VECTORS[vector]
    above = bytes.fromhex(VECTORS[parent][-1]) if parent else None
    assert recipe(model_name)(tuple(tokens), above).hex() == digest


@pytest.mark.parametrize(
    ("block_size", "model_name", "length", "vectors"),
    [(2048, QWEN, 4096, ["H8", "H9"]), (256, "", 700, ["H10", "H11"]), (256, "", 255, [])],
)
def test_chain_has_the_known_values(block_size, model_name, length, vectors):
    names = chain(np.arange(length, dtype=np.int32), block_size, named=recipe(model_name))
    assert [name.hex() for name in names] == [VECTORS[vector][-1] for vector in vectors]


@given(st.lists(st.integers(0, 2**31 - 1), max_size=40), st.integers(1, 9), st.integers(0, 40))
def test_a_chain_can_be_continued(tokens, block_size, known):
    ids = np.array(tokens, np.int32)
    whole = chain(ids, block_size, named=recipe("m"))
    parent = None
    for at, name in enumerate(whole):
        parent = recipe("m")(tuple(tokens[at * block_size : (at + 1) * block_size]), parent)
        assert name == parent
    assert len(whole) == len(tokens) // block_size
    assert chain(ids, block_size, named=recipe("m"), known=whole[:known]) == whole


@pytest.mark.parametrize(
    ("cache", "named"),
    [
        ("fusion-mlx", recipe(root=fusion_mlx.ROOT)),
        ("mlx-vlm", mlx_vlm.apc_recipe),
        ("vllm", vllm.vllm_recipe()),
        ("rapid-mlx:paged", recipe(root=rapid_mlx.ROOT)),
        ("vllm-mlx:paged", recipe(root=vllm_mlx.ROOT)),
    ],
)
def test_servers_caches_name_their_blocks_so(cache, named):
    made = make_cache(cache, block_size=4)
    made.store(TEN)
    assert [block.name for block in made.match(TEN).blocks] == [*chain(TEN, 4, named=named)]
