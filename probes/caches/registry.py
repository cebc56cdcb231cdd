"""Prefix caches: what a server still holds of earlier prompts, one module per kind of cache.

`make_cache` makes the cache that a name stands for; docs/caches.md describes each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
    from ..models.layers import Layers
    from ..models.sizes import Sizes
    from .base import PrefixCache
    from .block_hash_schemes import BlockHasher
    from .paged import FullHitRule
    from .servers.omlx import Version


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """What a cache is made with.

    Attributes:
        name: the cache's name, without a block size.
        layers: what the model's layers keep.
        block_size: tokens per block; None for the server's own rule.
        usual_size: what that rule gives a model whose layers can all be cut; None for the server's default.
        capacity_bytes: the most that the cache may hold; None for the server's own limit, or none.
        sizes: of the model's state, which count where no model computes.
        version: of oMLX.
    """

    name: str
    layers: Layers
    block_size: int | None = None
    usual_size: int | None = None
    capacity_bytes: int | None = None
    sizes: Sizes | None = None
    version: Version = "latest"


def make_cache(
    name: str,
    *,
    model_kind: str = "plain",
    block_size: int | None = None,
    capacity_bytes: int | None = None,
    sizes: Sizes | None = None,
    version: Version = "latest",
) -> PrefixCache:
    """Return the empty cache that a name stands for.

    Args:
        name: one of `names()`; `paged` and `vllm` also with the block size for plain layers, as in
            `paged:256`.
        model_kind: what the model's layers keep: `plain`, `rotating:WINDOW`, `hybrid`, ...; see `Layers.of`.
        block_size: tokens per block, for caches with blocks; None for the server's own rule.
        capacity_bytes: the most that it may hold; None for the server's own limit, or none.
        sizes: of the model's state, which count there where no model computes.
        version: of oMLX, for `paged`.

    Raises:
        UsageError: no cache has that name, it has no blocks to set a size of, or `model_kind` is none.
    """
    from ..models.layers import Layers

    base, _, option = name.partition(":")
    size = int(option) if option.isdecimal() and int(option) else None
    key = base if size and base in ("paged", "vllm") else name
    make = _CACHES.get(key)
    if make is None:
        raise UsageError(f"there is no cache {name!r}", fix=f"choose from {', '.join(names())}")
    settings = CacheSettings(
        name=key,
        layers=Layers.of(model_kind),
        block_size=block_size,
        usual_size=size,
        capacity_bytes=capacity_bytes,
        sizes=sizes,
        version=version,
    )
    cache = make(settings)
    if block_size not in (None, cache.block_size):
        raise UsageError(f"the cache {name} of this model has no blocks", fix="leave the block size out")
    return cache


def names() -> tuple[str, ...]:
    """Return the names of all caches, in the order of docs/caches.md."""
    return tuple(_CACHES)


def _paged(settings: CacheSettings) -> PrefixCache:
    from .servers import omlx

    return omlx.paged(
        settings.layers,
        settings.version,
        size=settings.block_size,
        default_size=settings.usual_size or 256,
        capacity_bytes=settings.capacity_bytes,
        sizes=settings.sizes,
    )


def _flyto(settings: CacheSettings) -> PrefixCache:
    return _forked(settings, 256)


def _fusion(settings: CacheSettings) -> PrefixCache:
    from .block_hash_schemes import FUSION_ROOT, block_hasher

    return _forked(settings, 64, named=block_hasher(root=FUSION_ROOT))


def _forked(settings: CacheSettings, size: int, *, named: BlockHasher | None = None) -> PrefixCache:
    """Return the cache of a server that took over oMLX's as it was before September 2026."""
    from .servers import omlx

    return omlx.paged(
        settings.layers,
        "0.5.3",
        size=settings.block_size,
        default_size=size,
        named=named,
        capacity_bytes=settings.capacity_bytes,
        sizes=settings.sizes,
        kind=settings.name,
    )


def _rapid_paged(settings: CacheSettings) -> PrefixCache:
    from .block_hash_schemes import RAPID_ROOT, block_hasher

    return _blocks(_plain(settings), settings.block_size or 64, named=block_hasher(root=RAPID_ROOT))


def _vllm_mlx_paged(settings: CacheSettings) -> PrefixCache:
    from .block_hash_schemes import VLLM_MLX_ROOT, block_hasher

    return _blocks(_plain(settings), settings.block_size or 64, named=block_hasher(root=VLLM_MLX_ROOT))


def _mlx_vlm(settings: CacheSettings) -> PrefixCache:
    from .block_hash_schemes import apc_hasher
    from .servers.mlx_vlm import BLOCK_SIZE, MlxVlmSnapshots

    if settings.layers.trimmable:
        return _blocks(settings, settings.block_size or BLOCK_SIZE, named=apc_hasher, full_hit="drop-block")
    return MlxVlmSnapshots(
        settings.layers,
        capacity_bytes=settings.capacity_bytes,
        sizes=settings.sizes,
    )


def _vllm(settings: CacheSettings) -> PrefixCache:
    from .block_hash_schemes import vllm_hasher

    size = settings.block_size or settings.usual_size or 16
    return _blocks(settings, size, named=vllm_hasher(), full_hit="drop-block")


def _entries(module: str, cache: str) -> Callable[[CacheSettings], PrefixCache]:
    """Return what makes a cache of whole sequences, whose module loads when it is made."""

    def make(settings: CacheSettings) -> PrefixCache:
        made: PrefixCache = getattr(import_module(f".{module}", __package__), cache)(
            settings.layers,
            capacity_bytes=settings.capacity_bytes,
            sizes=settings.sizes,
        )
        return made

    return make


def _blocks(
    settings: CacheSettings, size: int, *, named: BlockHasher, full_hit: FullHitRule | None = None
) -> PrefixCache:
    from .paged import PagedCache

    return PagedCache(
        size,
        named=named,
        capacity_bytes=settings.capacity_bytes,
        sizes=settings.sizes,
        trimmable=settings.layers.trimmable,
        full_hit=full_hit,
        kind=settings.name,
    )


def _plain(settings: CacheSettings) -> CacheSettings:
    """Refuse models that a server's paged cache does not take."""
    if not settings.layers.trimmable:
        server = settings.name.partition(":")[0]
        raise UsageError(
            f"the cache {settings.name} keeps models only whose layers can all be cut",
            fix=f"use the server's default, {server}",
        )
    return settings


_CACHES: dict[str, Callable[[CacheSettings], PrefixCache]] = {
    "paged": _paged,
    "flyto-mlx": _flyto,
    "fusion-mlx": _fusion,
    "mlx-lm": _entries("servers.mlx_lm", "MlxLmCache"),
    "rapid-mlx": _entries("servers.rapid_mlx", "RapidMlxCache"),
    "rapid-mlx:paged": _rapid_paged,
    "vllm-mlx": _entries("servers.vllm_mlx", "VllmMlxCache"),
    "vllm-mlx:paged": _vllm_mlx_paged,
    "vllm-mlx:legacy": _entries("servers.vllm_mlx", "VllmMlxLegacyCache"),
    "mlx-vlm": _mlx_vlm,
    "mtplx": _entries("servers.mtplx", "MtplxCache"),
    "llama.cpp": _entries("servers.llama_cpp", "LlamaCppCache"),
    "vllm": _vllm,
    "sglang": _entries("radix_tree", "SglangCache"),
    "ollama": _entries("radix_tree", "OllamaCache"),
}
