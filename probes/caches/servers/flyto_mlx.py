"""flyto-mlx's paged cache: oMLX's as it was before September 2026 (docs/servers.md, section 2)."""

from __future__ import annotations

from ..base import PrefixCache
from ..kind import CacheKind, CacheSettings
from . import omlx


def _make(settings: CacheSettings) -> PrefixCache:
    return omlx.paged(settings, "0.5.3")


KINDS = (CacheKind("flyto-mlx", _make, block_sizes=omlx.BLOCK_SIZES, stores_thinking=omlx.stores_thinking),)
