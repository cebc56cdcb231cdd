"""The caches of vllm-mlx: the simple engine's, and three of the batched engine."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING, Any

from ..base import NO_MARKS, Match, PrefixCache, PromptBoundaries
from ..hashes import recipe
from ..kind import CacheKind, CacheSettings, of_blocks, of_sequences, only_trimmable
from ..prefix_lookup import longest_continuation, longest_prefix, neighbour
from ..sequence_cache import End, SequenceCache, SequenceEntry
from ..sequences import TokenSequence

if TYPE_CHECKING:
    from ...conversation import Request
    from ...tokenization.tokens import Ids

ROOT = b"vllm-mlx-root"
#: Fields of a request that the simple engine's cache cannot honour, with the values that say nothing.
_PLAIN_SAMPLING: Mapping[str, tuple[Any, ...]] = {
    "stop": ([], ""),
    "stop_sequences": ([],),
    "top_k": (0, -1),
    "min_p": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1, 0),
}
#: Tokens per block of the paged cache.
BLOCK_SIZE = 64


class VllmMlxSimpleCache(SequenceCache):
    """The simple engine's cache, which is the server's default: the state behind a system prefix.

    Source: waybarrios/vllm-mlx 0.6.0 (October 2026), `engine/simple.py` and `engine/chat_template_safety.py`;
    read (docs/servers.md, section 5; docs/caches.md). All system messages are rendered before a user turn,
    wherever they stand. A prompt that begins with that goes on from the state behind it, if it is kept, or
    leaves it; all others are prefilled from the start. Models with sliding windows are not cached.
    """

    kind = "vllm-mlx"
    drops_prefixes = False
    #: `VLLM_MLX_SYSTEM_KV_SLOTS`.
    max_entries = 4
    #: Length of the system prefix of the prompt that was looked up last.
    _prefix = 0

    def reusable(self, shared: int, length: int) -> int:
        """Return the length of the system prefix that was stored last, where all of it is shared."""
        prefix = self._last.length if self._last else 0
        return prefix if prefix <= shared and prefix < length else 0

    def wants_system_prefix(self, request: Request) -> bool:
        """Tell whether the server looks at all: at streams and requests with tools that sample plainly."""
        fields = request.fields
        # A session that is not recorded as request bodies does not tell; agents stream.
        streams = fields.get("stream") or ("stream" not in fields and "model" not in fields)
        plain = all(fields.get(name) in (None, *usual) for name, usual in _PLAIN_SAMPLING.items())
        return bool(streams or request.tools) and plain

    def why_not(self, shared: int, length: int) -> str:
        """Say what is kept."""
        return "the server keeps nothing but the state behind the system messages (--continuous-batching)"

    def match(self, ids: Ids, marks: PromptBoundaries = NO_MARKS) -> Match:
        """Return the system prefix of a prompt, where that is kept."""
        self._prefix = marks.system_prefix
        return super().match(ids, marks)

    def probe(self, ids: Ids, marks: PromptBoundaries = NO_MARKS) -> int:
        """Return how many tokens `match` would take over."""
        other = copy(self)
        other._prefix = marks.system_prefix
        return SequenceCache.probe(other, ids, marks)

    def _ends(self, length: int, reused: int, marks: PromptBoundaries) -> tuple[End, ...]:
        prefix = 0 if self.layers.window else marks.system_prefix
        return ((prefix, "system"),) if prefix > reused else ()

    def _resume(self, entry: SequenceEntry, prompt: TokenSequence) -> int:
        whole = entry.length == self._prefix < prompt.length and entry.ids.common(prompt) == entry.length
        return entry.length if whole else 0


class VllmMlxCache(SequenceCache):
    """The batched engine's cache (`--continuous-batching`): shorter and parting prompts of at least 128
    tokens.

    Source: waybarrios/vllm-mlx 0.6.0 (October 2026), `memory_cache.py` and `scheduler.py`; run: the lookup
    beside this one on random sequences without a difference, and what is stored of a model whose layers
    cannot be cut (docs/servers.md, section 5; docs/caches.md). A prompt that is there whole is prefilled
    again, and a shorter sequence is preferred to a parting one even where that shares more.
    """

    kind = "vllm-mlx:batched"
    max_entries = 1000
    #: What is shorter is neither stored nor looked up.
    min_tokens = 128
    #: A state that cannot be cut is stored again once a prompt has grown by more than this.
    refresh = 4096

    def reusable(self, shared: int, length: int) -> int:
        """Return how much an unlimited cache takes over of `length` tokens, `shared` of them stored."""
        if shared < self.min_tokens or shared >= length:
            return 0
        found = super().reusable(shared, length)
        return found if found >= self.min_tokens else 0

    def _find(self, prompt: TokenSequence) -> tuple[SequenceEntry | None, int]:
        if prompt.length < self.min_tokens:
            return None, 0
        shared = self._shared(prompt)
        for entry, common in shared:
            if common == entry.length == prompt.length:
                return entry, 0
        longer = longest_continuation(shared, prompt)
        if longer is not None and self._cuttable(longer):
            return longer, 0
        prefix, most = longest_prefix(shared, prompt)
        if prefix is not None:
            return prefix, most
        near, common = neighbour(shared, prompt)
        if near is None or common < self.min_tokens or not self._cuttable(near):
            return None, 0
        return near, min(common, prompt.length - 1)

    def _ends(self, length: int, reused: int, marks: PromptBoundaries) -> tuple[End, ...]:
        if self.layers.sliceable_at(length):
            return ((length, ""),) if length >= self.min_tokens else ()
        prompt = length if marks.prompt_tokens is None else marks.prompt_tokens
        stale = not reused or prompt - reused > self.refresh
        # The state is copied when the first token of the reply has been computed.
        end = min(prompt + 1, length)
        return ((end, ""),) if stale and end >= self.min_tokens else ()

    def _insert(self, entry: SequenceEntry) -> None:
        begun = self._begun(entry)
        equal = next((other for other in begun if other.length == entry.length), None)
        if equal is not None:
            self._use(equal, entry.ids)
            return
        if not self._cuttable(entry):
            for other in begun:
                self._remove(other)
        self._make_room(entry)


class VllmMlxLegacyCache(SequenceCache):
    """vllm-mlx's cache without `use_memory_aware_cache`: a sequence helps only where the prompt parts at its
    end.

    Source: waybarrios/vllm-mlx 0.6.0 (October 2026), `prefix_cache.py`; run beside this one on random
    sequences without a difference (docs/servers.md, section 5; docs/caches.md).
    """

    kind = "vllm-mlx:legacy"
    drops_prefixes = False
    max_entries = 100

    def reusable(self, shared: int, length: int) -> int:
        """Return how much an unlimited cache takes over where a whole sequence, or the prompt, is shared."""
        if shared < length:
            return shared
        trimmable = self._last is None or self._cuttable(self._last)
        return max(0, length - 1) if trimmable else 0

    def _find(self, prompt: TokenSequence) -> tuple[SequenceEntry | None, int]:
        shared = self._shared(prompt)
        walked = max((common for _, common in shared), default=0)
        for entry, common in shared:
            if common == walked == entry.length:
                if walked < prompt.length:
                    return entry, walked
                return entry, walked - 1 if self._cuttable(entry) else 0
        if walked < prompt.length:
            return None, 0
        longer = next((entry for entry, common in shared if common == walked and self._cuttable(entry)), None)
        return (longer, max(0, walked - 1)) if longer else (None, 0)

    def _use(self, entry: SequenceEntry, prompt: TokenSequence) -> None:
        if entry.length <= prompt.length:
            super()._use(entry, prompt)


def _paged(settings: CacheSettings) -> PrefixCache:
    return of_blocks(only_trimmable(settings), BLOCK_SIZE, named=recipe(root=ROOT))


def _by_engine(settings: CacheSettings) -> PrefixCache:
    batched = settings.options.get("engine") == "batched"
    return of_sequences(VllmMlxCache if batched else VllmMlxSimpleCache)(settings)


KINDS = (
    CacheKind(VllmMlxSimpleCache.kind, _by_engine, options={"engine": ("simple", "batched", "vlm")}),
    CacheKind(VllmMlxCache.kind, of_sequences(VllmMlxCache)),
    CacheKind("vllm-mlx:paged", _paged),
    CacheKind(VllmMlxLegacyCache.kind, of_sequences(VllmMlxLegacyCache)),
)
