"""The arithmetic of prefix caches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tplaudit.probes.caches.base import reusable


@pytest.mark.parametrize(
    ("shared", "length", "block_size", "expected"),
    [
        # The floors that public server logs show (docs/servers.md, section oMLX).
        (23128, 60000, 2048, 22528),
        (2047, 60000, 2048, 0),
        (1000, 4000, 256, 768),
        (1000, 5000, 256, 768),
        (4096, 4096, 2048, 4095),
        (33219, 40000, 2048, 32768),
        (119464, 130000, 4096, 118784),
        # Ends of the range.
        (0, 0, 256, 0),
        (0, 1, 256, 0),
        (1, 1, 1, 0),
        (5, 5, 1, 4),
        (5, 6, 1, 5),
        (511, 512, 256, 256),
        (512, 513, 256, 512),
    ],
)
def test_reusable(shared, length, block_size, expected):
    assert reusable(shared, length, block_size) == expected


@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(1, 600))
def test_at_least_one_token_is_computed(shared, length, block_size):
    found = reusable(shared, length, block_size)
    assert 0 <= found <= min(shared, max(length - 1, 0))
