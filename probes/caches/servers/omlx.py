"""The settings of oMLX's paged cache, by its version and by the model's layers.

Source: 0.5.3 of July 2026 run or read, code of September and autumn 2026 read (jundot/omlx and repositories
that carry its code; docs/servers.md, sections 1.17 and 1.18). That layers which can all be cut get no tails
is inferred from the project's tests.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from ...models.layers import Layers
from ...models.sizes import Sizes
from ..block_hash_schemes import BlockHasher
from ..paged import FullHitRule, PagedCache

#: `0.5.3` of July 2026, `sept` (about 2026-09-08), `latest`: autumn 2026, with tails.
Version: TypeAlias = Literal["0.5.3", "sept", "latest"]
VERSIONS: tuple[Version, ...] = get_args(Version)

_ROTATING = 512
_RECURRENT = 2048


def block_size(layers: Layers, default: int = 256) -> int:
    """Return the tokens per block for a model.

    The default where all layers can be cut. With sliding windows the smallest multiple of the window that is
    at least 512, so at most 1023 for smaller windows and the window itself for larger ones, whatever other
    layers there are; else 2048 with recurrent ones. The server does both only with a cache directory.
    """
    if layers.window:
        return -(-_ROTATING // layers.window) * layers.window
    return _RECURRENT if layers.recurrent else default


def full_hit_rule(layers: Layers, version: Version) -> FullHitRule:
    """Return what a version does with a prompt that is there whole.

    0.5.3 prefilled it again where layers cannot be cut; since September recurrent models give up the last
    block. That sliding windows do so in the latest code is inferred.
    """
    if layers.trimmable:
        return "trim"
    return "drop-block" if version == "latest" or (version == "sept" and layers.recurrent) else "prefill"


def paged(
    layers: Layers,
    version: Version = "latest",
    *,
    size: int | None = None,
    default_size: int = 256,
    named: BlockHasher | None = None,
    capacity_bytes: int | None = None,
    sizes: Sizes | None = None,
    kind: str = "paged",
) -> PagedCache:
    """Return the cache of one version for one model.

    Args:
        layers: what the model's layers keep.
        version: of the server.
        size: tokens per block; None for the version's own rule.
        default_size: what that rule gives a model whose layers can all be cut.
        named: names the blocks; None for oMLX's way.
        capacity_bytes: as of `PagedCache`.
        sizes: as of `PagedCache`.
        kind: the cache's name in reports.
    """
    return PagedCache(
        size or block_size(layers, default_size),
        named=named,
        capacity_bytes=capacity_bytes,
        sizes=sizes,
        trimmable=layers.trimmable,
        full_hit=full_hit_rule(layers, version),
        tails=version == "latest" and not layers.trimmable,
        kind=kind,
    )
