"""The cache that a policy's server keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..policies.registry import POLICIES, canonical
from .registry import make_cache
from .servers.omlx import VERSIONS, Version

if TYPE_CHECKING:
    from ..models.sizes import Sizes
    from ..policies.base import Policy
    from .base import PrefixCache

#: oMLX's, for policies that belong to no server.
DEFAULT_CACHE = "paged:256"


def cache_name(policy: Policy) -> str:
    """Return the name of the cache that the server of a policy keeps, whatever its blocks."""
    kind = POLICIES.get(canonical(policy.name).partition(":")[0])
    return ((kind.cache if kind else "") or DEFAULT_CACHE).partition(":")[0]


def server_cache(
    policy: Policy,
    *,
    model_kind: str = "plain",
    block_size: int | None = None,
    capacity_bytes: int | None = None,
    sizes: Sizes | None = None,
) -> PrefixCache:
    """Return an empty cache as the server of a policy keeps it, or a paged one with blocks of a given size.

    Args:
        policy: the policy; its `version`, where it has one, is that of oMLX's cache too.
        model_kind: as of `make_cache`.
        block_size: tokens per block of a paged cache in the place of the server's own; None for that.
        capacity_bytes: as of `make_cache`.
        sizes: as of `make_cache`.
    """
    name, _, options = canonical(policy.name).partition(":")
    kind = POLICIES.get(name)
    # Other servers' versions have other names.
    given: Version = next((each for each in VERSIONS if f"version={each}" in options.split(",")), "latest")
    return make_cache(
        "paged" if block_size else (kind.cache if kind else "") or DEFAULT_CACHE,
        model_kind=model_kind,
        block_size=block_size,
        capacity_bytes=capacity_bytes,
        sizes=sizes,
        version=given,
    )
