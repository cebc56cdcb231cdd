"""The token tree of Ollama's MLX runner: what prompts share is kept once."""

from __future__ import annotations

from collections.abc import Iterable

from ..base import Block, Match, PromptBoundaries
from ..kind import CacheKind, of_sequences
from ..sequence_cache import SequenceCache
from ..sequences import TokenSequence


class OllamaCache(SequenceCache):
    """The tree of Ollama's MLX runner: cut anywhere, or restored from snapshots where layers cannot be cut.

    Source: ollama/ollama, `x/mlxrunner/cache.go` and its prefill, in public copies between March and autumn
    2026; read; #15058 (2026-03-25) and #18267 (docs/servers.md, section 12; docs/caches.md). Snapshots stand
    every 8192 tokens, four tokens before a prompt's end, where a prompt parted from a stored one but had to
    go back further, and at the end of a sequence as long as nothing continues it.
    """

    kind = "ollama"
    shared = True
    stride = 8192
    before_end = 4

    def _snapshots(self, sequence: TokenSequence, match: Match, marks: PromptBoundaries) -> Iterable[int]:
        prompt = sequence.length if marks.prompt_tokens is None else marks.prompt_tokens
        parted = min(max((common for _, common in self._shared(sequence)), default=0), prompt - 1)
        back = (parted,) if parted > match.reused else ()
        return {*range(self.stride, prompt, self.stride), prompt - self.before_end, *back}

    def _inherited(self, blocks: tuple[Block, ...]) -> tuple[int, ...]:
        live = blocks and any(entry.blocks[-1] is blocks[-1] for entry in self._entries)
        return super()._inherited(blocks[:-1] if live else blocks)


KINDS = (CacheKind(OllamaCache.kind, of_sequences(OllamaCache)),)
