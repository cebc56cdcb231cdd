"""mlx-vlm's snapshots."""

from __future__ import annotations

import numpy as np
from tplaudit.probes.caches.servers.mlx_vlm import MlxVlmSnapshots
from tplaudit.probes.models.layers import Layers

HYBRID = Layers(recurrent=True)


def array(tokens):
    return np.array(tokens, np.int32)


def test_mlx_vlm_keeps_two_snapshots(turn):
    cache = MlxVlmSnapshots(HYBRID)
    for first in range(3):
        turn(cache, [first, *range(30)])
    assert [cache.match(array([first, *range(40)])).reused for first in range(3)] == [0, 30, 30]
    assert cache.match(array([2, *range(29)])).reused == 0
    assert cache.reusable(31, 41) == 30
    turn(cache, range(16))
    assert len(cache) == 2
