"""The two caches of vllm-mlx that keep whole sequences: sized by memory, and the older one."""

from __future__ import annotations

from ..base import PrefixCache, PromptBoundaries
from ..hashes import recipe
from ..kind import CacheKind, CacheSettings, of_blocks, of_sequences, only_trimmable
from ..prefix_lookup import longest_continuation, longest_prefix, neighbour
from ..sequence_cache import End, SequenceCache, SequenceEntry
from ..sequences import TokenSequence

ROOT = b"vllm-mlx-root"
#: Tokens per block of the paged cache.
BLOCK_SIZE = 64


class VllmMlxCache(SequenceCache):
    """vllm-mlx's default cache: shorter and parting prompts of at least 128 tokens.

    Source: waybarrios/vllm-mlx 0.6.0 (October 2026), `memory_cache.py` and `scheduler.py`; the lookup was run
    beside this one on random sequences without a difference, what is stored was read (docs/servers.md,
    section 5; docs/caches.md). A prompt that is there whole is prefilled again, and a shorter sequence is
    preferred to a parting one even where that shares more.
    """

    kind = "vllm-mlx"
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
        return ((prompt, ""),) if stale and prompt >= self.min_tokens else ()

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


KINDS = (
    CacheKind(VllmMlxCache.kind, of_sequences(VllmMlxCache)),
    CacheKind("vllm-mlx:paged", _paged),
    CacheKind(VllmMlxLegacyCache.kind, of_sequences(VllmMlxLegacyCache)),
)
