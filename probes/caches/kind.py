"""What a module of `servers` states about a cache: its name, its options, and how it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..models.layers import Layers
from ..models.sizes import Sizes
from .base import PrefixCache

if TYPE_CHECKING:  # both bring NumPy
    from ..templates.template import ChatTemplate
    from .hashes import BlockHasher
    from .paged import FullHitRule
    from .sequence_cache import SequenceCache


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """What a cache is made with.

    Attributes:
        name: the cache's name, without a block size.
        layers: what the model's layers keep.
        block_size: tokens per block; None for the server's own rule.
        usual_size: what that rule gives a model whose layers can all be trimmed; None for the server's
            default.
        capacity_bytes: the most that the cache may hold; None for the server's own limit, or none.
        sizes: of the model's state, which count where no model computes.
        aligned_block: as of `StateSize`.
        options: the kind's options that were given, such as the server's version.
    """

    name: str
    layers: Layers
    block_size: int | None = None
    usual_size: int | None = None
    capacity_bytes: int | None = None
    sizes: Sizes | None = None
    aligned_block: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CacheKind:
    """A cache that a policy, or a person, can name.

    Attributes:
        name: the name.
        make: returns the empty cache.
        sized: whether the name may have a block size behind a colon.
        block_sizes: tokens per block that people run the server with; empty where it has no blocks.
        options: the options that it knows and, for each, the values.
        stores_thinking: whether the server keeps a reply that thinks, given the template and its kwargs; None
            where it keeps every reply.
    """

    name: str
    make: Callable[[CacheSettings], PrefixCache]
    sized: bool = False
    block_sizes: tuple[int, ...] = ()
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    stores_thinking: Callable[[ChatTemplate, Mapping[str, Any]], bool] | None = None


def of_sequences(cache: type[SequenceCache]) -> Callable[[CacheSettings], PrefixCache]:
    """Return what makes a cache of whole sequences, for `CacheKind.make`."""

    def make(settings: CacheSettings) -> PrefixCache:
        return cache(settings.layers, capacity_bytes=settings.capacity_bytes, sizes=settings.sizes)

    return make


def of_blocks(
    settings: CacheSettings,
    size: int,
    *,
    named: BlockHasher,
    full_hit: FullHitRule | None = None,
    step: int | None = None,
) -> PrefixCache:
    """Return a cache with blocks of `size` tokens unless the settings give another size.

    Args:
        settings: what the cache is made with.
        size: tokens per block.
        named: names the blocks.
        full_hit: what the server does with a prompt that is there whole; None for what `PagedCache` does.
        step: as of `PagedCache`.
    """
    from .paged import PagedCache

    return PagedCache(
        settings.block_size or settings.usual_size or size,
        named=named,
        capacity_bytes=settings.capacity_bytes,
        sizes=settings.sizes,
        trimmable=settings.layers.trimmable,
        full_hit=full_hit,
        step=step,
        kind=settings.name,
    )


def only_trimmable(settings: CacheSettings) -> CacheSettings:
    """Refuse models that a server's paged cache does not take.

    Raises:
        UsageError: some of the model's layers cannot be trimmed.
    """
    if not settings.layers.trimmable:
        server = settings.name.partition(":")[0]
        raise UsageError(
            f"the cache {settings.name} supports only models whose layers can all be trimmed",
            fix=f"use the server's default, {server}",
        )
    return settings
