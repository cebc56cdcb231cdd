"""fusion-mlx's cache: the names of its blocks are those that its own function gave."""

from token_ids import TEN
from tplaudit.probes.caches.hashes import chain, recipe
from tplaudit.probes.caches.servers.fusion_mlx import ROOT


def test_names_of_blocks():
    assert [name.hex() for name in chain(TEN, 4, named=recipe("M", ROOT))] == [
        "74d61f955cf57abfe2a708dca429647ff3b92f51c53b67653e472ac97daed4e8",
        "a5880c8949c28f992601d384212ed48bc0370b8517168ae48e3d99c7e52d53a0",
    ]
