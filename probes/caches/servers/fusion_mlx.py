"""fusion-mlx's paged cache: oMLX's as it was before September 2026, with a root and blocks of its own.

See docs/servers.md, section 3.
"""

from __future__ import annotations

from ..base import PrefixCache
from ..hashes import recipe
from ..kind import CacheKind, CacheSettings
from . import omlx

ROOT = b"fusion-mlx-root"
BLOCK_SIZE = 64


def _make(settings: CacheSettings) -> PrefixCache:
    return omlx.paged(settings, "0.5.3", BLOCK_SIZE, recipe(root=ROOT))


KINDS = (CacheKind("fusion-mlx", _make, block_sizes=omlx.BLOCK_SIZES, stores_thinking=omlx.stores_thinking),)
