"""The settings of oMLX's paged cache, by its version and by the model's layers.

Source: 0.5.3 of July 2026 run or read, code of September and autumn 2026 read (jundot/omlx and repositories
that carry its code; docs/servers.md, sections 1.17 and 1.18). That layers which can all be cut get no tails
is inferred from the project's tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

from ...models.layers import Layers
from ...models.template_files import model_name, model_type
from ...policies.servers.omlx_reasoning import detect_preserve_thinking, native_reasoning, output_cacheable
from ..base import PrefixCache
from ..hashes import BlockHasher
from ..kind import CacheKind, CacheSettings
from ..paged import FullHitRule, PagedCache

if TYPE_CHECKING:
    from ...templates.template import ChatTemplate

#: `0.5.3` of July 2026, `sept` (about 2026-09-08), `latest`: autumn 2026, with tails.
Version: TypeAlias = Literal["0.5.3", "sept", "latest"]
VERSIONS: tuple[Version, ...] = get_args(Version)

#: Tokens per block where all layers can be cut.
BLOCK_SIZE = 256
#: Sizes to try for `paged_cache_block_size` (`omlx/scheduler.py`); hybrid models get 2,048 by themselves.
BLOCK_SIZES = (64, 128, 256, 512, 1024, 2048)
_ROTATING = 512
_RECURRENT = 2048


def block_size(layers: Layers, default: int = BLOCK_SIZE) -> int:
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
    settings: CacheSettings, version: Version, size: int = BLOCK_SIZE, named: BlockHasher | None = None
) -> PrefixCache:
    """Return the cache of one version for one model.

    Args:
        settings: what the cache is made with.
        version: of the server; `0.5.3` also for those that took the cache over before September 2026.
        size: tokens per block of a model whose layers can all be trimmed.
        named: names the blocks; None for oMLX's recipe.
    """
    layers = settings.layers
    return PagedCache(
        settings.block_size or block_size(layers, settings.usual_size or size),
        named=named,
        capacity_bytes=settings.capacity_bytes,
        sizes=settings.sizes,
        trimmable=layers.trimmable,
        full_hit=full_hit_rule(layers, version),
        tails=version == "latest" and not layers.trimmable,
        kind=settings.name,
    )


def stores_thinking(template: ChatTemplate, kwargs: Mapping[str, Any]) -> bool:
    """Tell whether a reply that thinks is kept: where its output was found to be cacheable.

    See docs/servers.md, section 1.13.
    """
    native = native_reasoning(detect_preserve_thinking(template), model_type(template), model_name(template))
    return output_cacheable(None, native, kwargs.get("preserve_thinking"))


def _latest(settings: CacheSettings) -> PrefixCache:
    return paged(settings, cast(Version, settings.options.get("version", VERSIONS[-1])))


KINDS = (
    CacheKind(
        "paged",
        _latest,
        sized=True,
        block_sizes=BLOCK_SIZES,
        options={"version": VERSIONS},
        stores_thinking=stores_thinking,
    ),
)
