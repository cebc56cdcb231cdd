"""The first difference of two texts."""

from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tplaudit.probes.text import common_prefix


@pytest.mark.parametrize(
    ("one", "other", "length"),
    [("", "a", 0), ("ab", "ab", 2), ("ab", "abc", 2), ("ab", "ac", 1), ("a", "b", 0)],
)
def test_the_first_difference(one: str, other: str, length: int) -> None:
    assert common_prefix(one, other) == common_prefix(other, one) == length


@given(st.text(), st.text(), st.text())
def test_any_texts(shared: str, one: str, other: str) -> None:
    one, other = shared + one, shared + other
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    assert common_prefix(one, other) == len(list(alike))
