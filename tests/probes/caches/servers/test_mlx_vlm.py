"""mlx-vlm's snapshots, and the names of its blocks as its own function gave them."""

from token_ids import HYBRID, TEN, array, turn
from tplaudit.probes.caches.hashes import chain
from tplaudit.probes.caches.servers.mlx_vlm import MlxVlmSnapshots, apc_hash, apc_recipe


def test_mlx_vlm_keeps_two_snapshots():
    cache = MlxVlmSnapshots(HYBRID)
    for first in range(3):
        turn(cache, [first, *range(30)])
    assert [cache.match(array([first, *range(40)])).reused for first in range(3)] == [0, 30, 30]
    assert cache.match(array([2, *range(29)])).reused == 0
    assert cache.reusable(31, 41) == 30
    turn(cache, range(16))
    assert len(cache) == 2


def test_names_of_blocks():
    first = apc_hash((1, 2, 3, 4))
    assert (first, apc_hash((5, 6, 7, 8), first)) == (172107349397897382, 1905236465778937338)
    names = chain(TEN, 4, named=apc_recipe)
    assert [int.from_bytes(name, "little", signed=True) for name in names] == [
        first,
        apc_hash((5, 6, 7, 8), first),
    ]
    assert apc_hash((1, 2, 3, 4), extra=1) != first
