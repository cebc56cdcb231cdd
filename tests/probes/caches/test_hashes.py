"""Block hashes: known values, and chains that continue one another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tplaudit.probes.caches.hashes import block_hash, chain

QWEN = "Qwen3.8-27B-6bit"
STATIC = ("specprefill-static-exact-v1",)

# name: (model name, parent's name, tokens, extra keys), digest
VECTORS = {
    "H1": (
        (None, None, (1, 2, 3, 4), None),
        "2feaaca2a94b2a2dee4d7445e77309c19ddacd3b61c00b07a3517825a3661443",
    ),
    "H2": (
        (None, "H1", (5, 6, 7, 8), None),
        "1330432351571190421df806ea0ea315986bfa775bd95c78858c8aeb926b4e1f",
    ),
    "H3": (
        (None, "H1", (5, 99, 7, 8), None),
        "746e8f826129024e6132f3a15d528051875e3487d8d930c7b4f4ee0d154475ec",
    ),
    "H4": (
        (QWEN, None, (1, 2, 3, 4), None),
        "5ce0d1089b4f0caad70e4564f13b489a382b346d8b90758bed2ee23064a22959",
    ),
    "H5": (
        (QWEN, "H4", (5, 6, 7, 8), None),
        "2d1d7dc9eca17060368c0bb617affc50129482d13aaa38bd3ea4d1a618a95ceb",
    ),
    "H6": (
        (None, None, (1, 2, 3, 4), ("abc",)),
        "a2a913cb42c84d3f9d43bf24cd338d239d9f9fca8f685be6822ae9991ad67685",
    ),
    "H7": (
        (None, None, (7,), None),
        "7bd0adb0e9df32e02bdf461f01436c3f8a589809ae716cc32004b029458872a5",
    ),
    "H8": (
        (QWEN, None, range(2048), None),
        "80b3bed3031d7860952627ee85241b92307aa568a7080242cb8c7962d8e38dbc",
    ),
    "H9": (
        (QWEN, "H8", range(2048, 4096), None),
        "2f147c4a735a1825b2a61f0b725092f177fc4186c01d10150123825cea5e014a",
    ),
    "H10": (
        (None, None, range(256), None),
        "a93521eefc77abf016e46d475bfa98c6d418432e854fb29bd791cae8984ebc70",
    ),
    "H11": (
        (None, "H10", range(256, 512), None),
        "7372f20d118ca8a9263de827312552376faba68058f5f835720d70e5653c1e1d",
    ),
    "H12": (
        ("test-model", None, (1, 2, 3, 4), None),
        "eccd492fb02022cf654b44da617cf8fb3caa40d7ae912bc473a99850f294f768",
    ),
    "H13": (
        ("test-model", "H12", (5, 6), None),
        "d495746112d62dd162b9275c2f442d7b7bd5fd3540e72d1890621c7f95e70dd0",
    ),
    "H14": (
        ("test-model", "H12", (5, 6, 7), None),
        "2c954679d33ec71d9f70e2d8c314257bd7aeabdb1bbcb08ef9804ccb2151d9eb",
    ),
    "H15": (
        ("test-model", None, (1, 2), None),
        "478547c16b227efb55114e3ce31d52ad64424d58445ef9596f8098c3f13bfd79",
    ),
    "H16": (
        ("test-model", None, (1, 2, 3), None),
        "789ef7441e01cd1b2ab4ee6c04a6cc0373f493e3b551610f4a627f74547a42dc",
    ),
    "H17": (
        ("test-model", "H12", (5, 6), STATIC),
        "cd08ad7eb8b0f88990e085dd1852c0c04617833be3a9ef9a1e9adb8401aa1f87",
    ),
}


@pytest.mark.parametrize("container", [tuple, list, lambda tokens: np.array(tokens, np.int32)])
@pytest.mark.parametrize("vector", VECTORS)
def test_known_values(vector, container):
    (model_name, parent, tokens, extra_keys), digest = VECTORS[vector]
    above = bytes.fromhex(VECTORS[parent][-1]) if parent else None
    found = block_hash(container(tokens), above, model_name=model_name, extra_keys=extra_keys)
    assert found.hex() == digest


def test_an_empty_model_name_is_none_and_empty_extra_keys_are_none():
    assert block_hash((1, 2, 3, 4), model_name="", extra_keys=()).hex() == VECTORS["H1"][-1]


@pytest.mark.parametrize(
    ("block_size", "model_name", "length", "vectors"),
    [(2048, QWEN, 4096, ["H8", "H9"]), (256, None, 700, ["H10", "H11"]), (256, None, 255, [])],
)
def test_chain_has_the_known_values(block_size, model_name, length, vectors):
    names = chain(np.arange(length, dtype=np.int32), block_size, model_name=model_name)
    assert [name.hex() for name in names] == [VECTORS[vector][-1] for vector in vectors]


@given(st.lists(st.integers(0, 2**31 - 1), max_size=40), st.integers(1, 9), st.integers(0, 40))
def test_a_chain_can_be_continued(tokens, block_size, known):
    ids = np.array(tokens, np.int32)
    whole = chain(ids, block_size, model_name="m")
    parent = None
    for at, name in enumerate(whole):
        parent = block_hash(tokens[at * block_size : (at + 1) * block_size], parent, model_name="m")
        assert name == parent
    assert len(whole) == len(tokens) // block_size
    assert chain(ids, block_size, model_name="m", known=whole[:known]) == whole
