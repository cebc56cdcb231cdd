"""Prompts as token ids, and a model whose layers cannot be trimmed, as the tests of caches write them."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tplaudit.probes.caches.base import NO_MARKS, PromptBoundaries
from tplaudit.probes.models.layers import Layers
from tplaudit.probes.tokenization.tokens import Ids, common_prefix_ids

HYBRID = Layers(recurrent=True)
TEN = np.arange(1, 11, dtype=np.int32)
#: Prompts of few different tokens, so that they share beginnings of any length.
conversations = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=12), min_size=1, max_size=10)


def array(tokens: Iterable[int]) -> Ids:
    return np.array([*tokens], np.int32)


def common(one: Iterable[int], other: Iterable[int]) -> int:
    return common_prefix_ids(array(one), array(other))


def turn(cache: Any, tokens: Iterable[int], marks: PromptBoundaries = NO_MARKS) -> int:
    """One request through an engine that only counts; returns what was reused."""
    ids = array(tokens)
    match = cache.match(ids)
    with cache.pin(match):
        cache.store(ids, match=match, marks=marks)
    return int(match.reused)
