"""The caches: what a server still holds of earlier prompts.

A new cache is one module of `servers` with its `KINDS`, and its line in `_kinds`; docs/caches.md describes
each. `make_cache` makes the cache that a name stands for, `server_cache` that of a policy's server.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..policies.registry import cache_of
from .kind import CacheKind, CacheSettings

if TYPE_CHECKING:
    from ..models.sizes import Sizes
    from ..policies.base import Policy
    from .base import PrefixCache

#: What counts for policies that are not registered, and where a person gives a block size.
DEFAULT_CACHE = "paged"


@cache
def _kinds() -> dict[str, CacheKind]:
    """Return the caches by name, in the order of docs/caches.md; their modules bring NumPy."""
    from .servers import (
        flyto_mlx,
        fusion_mlx,
        llama_cpp,
        mlx_lm,
        mlx_vlm,
        mtplx,
        ollama,
        omlx,
        rapid_mlx,
        sglang,
        vllm,
        vllm_mlx,
    )

    modules = (
        omlx,
        flyto_mlx,
        fusion_mlx,
        mlx_lm,
        rapid_mlx,
        vllm_mlx,
        mlx_vlm,
        mtplx,
        llama_cpp,
        vllm,
        sglang,
        ollama,
    )
    return {kind.name: kind for module in modules for kind in module.KINDS}


def names() -> tuple[str, ...]:
    """Return the names of all caches, in the order of docs/caches.md."""
    return tuple(_kinds())


def find_cache(name: str) -> CacheKind:
    """Return what is known of a cache.

    Args:
        name: one of `names()`, with or without a block size where it may have one.

    Raises:
        UsageError: no cache has that name.
    """
    return _sized(name)[0]


def make_cache(
    name: str,
    *,
    model_kind: str = "plain",
    block_size: int | None = None,
    capacity_bytes: int | None = None,
    sizes: Sizes | None = None,
    aligned_block: int | None = None,
    options: Mapping[str, str] | None = None,
    shown: str | None = None,
) -> PrefixCache:
    """Return the empty cache that a name stands for.

    Args:
        name: one of `names()`; for some also with the block size for plain layers, as in `paged:256`.
        model_kind: what the model's layers keep: `plain`, `rotating:WINDOW`, `hybrid`, ...; see `Layers.of`.
        block_size: tokens per block, for caches with blocks; None for the server's own rule.
        capacity_bytes: the most that it may hold; None for the server's own limit, or none.
        sizes: of the model's state, which count there where no model computes.
        aligned_block: as of `StateSize`.
        options: options of that cache, such as the server's version; those that it does not know have no
            effect.
        shown: its name in reports; None for its own.

    Raises:
        UsageError: no cache has that name, it has no blocks to set a size of, or `model_kind` is none.
    """
    from ..models.layers import Layers

    kind, size = _sized(name)
    known = {option: value for option, value in (options or {}).items() if option in kind.options}
    made = kind.make(
        CacheSettings(
            name=shown or kind.name,
            layers=Layers.of(model_kind),
            block_size=block_size,
            usual_size=size,
            capacity_bytes=capacity_bytes,
            sizes=sizes,
            aligned_block=aligned_block,
            options=known,
        )
    )
    if block_size not in (None, made.block_size):
        raise UsageError(f"the cache {name} of this model has no blocks", fix="leave the block size out")
    return made


def cache_name(policy: Policy) -> str:
    """Return the name of the cache that the server of a policy keeps, whatever its blocks."""
    return _named(policy)[0].partition(":")[0]


def block_sizes(policy: Policy) -> tuple[int, ...]:
    """Return the block sizes that people run the server of a policy with; none where it has no blocks."""
    kind = find_cache(_named(policy)[0])
    return kind.block_sizes


def server_cache(
    policy: Policy,
    *,
    model_kind: str = "plain",
    block_size: int | None = None,
    capacity_bytes: int | None = None,
    sizes: Sizes | None = None,
    aligned_block: int | None = None,
) -> PrefixCache:
    """Return an empty cache as the server of a policy keeps it.

    Where a block size is given, reports call it a paged one. It has the server's own rule for prompts that
    are there whole, or oMLX's where the server keeps no blocks.

    Args:
        policy: the policy, whose options may concern its cache, too.
        model_kind: as of `make_cache`.
        block_size: tokens per block of a paged cache in the place of the server's own; None for that.
        capacity_bytes: as of `make_cache`.
        sizes: as of `make_cache`.
        aligned_block: as of `StateSize`.
    """
    name, options = _named(policy)
    make = partial(
        make_cache,
        model_kind=model_kind,
        block_size=block_size,
        capacity_bytes=capacity_bytes,
        sizes=sizes,
        aligned_block=aligned_block,
        options=options,
    )
    if block_size and not find_cache(name).block_sizes:
        return make(DEFAULT_CACHE)
    try:
        return make(name, shown=DEFAULT_CACHE if block_size else None)
    except UsageError:
        if block_size:
            return make(DEFAULT_CACHE)
        raise


def _named(policy: Policy) -> tuple[str, Mapping[str, str]]:
    """Return the name of the cache of a policy's server, and its options."""
    return cache_of(policy.name) or (DEFAULT_CACHE, {})


def _sized(name: str) -> tuple[CacheKind, int | None]:
    """Return the cache that a name stands for, and the block size behind it; None where there is none."""
    kinds = _kinds()
    base, _, option = name.partition(":")
    size = int(option) if option.isdecimal() and int(option) else None
    kind = kinds.get(base if size and base in kinds and kinds[base].sized else name)
    if kind is None:
        raise UsageError(f"there is no cache {name!r}", fix=f"choose from {', '.join(kinds)}")
    return kind, size
