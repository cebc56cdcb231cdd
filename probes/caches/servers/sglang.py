"""SGLang's radix tree: what prompts share is kept once."""

from __future__ import annotations

from collections.abc import Iterable

from ..base import Match, PromptBoundaries
from ..kind import CacheKind, of_sequences
from ..sequence_cache import SequenceCache
from ..sequences import TokenSequence


class SglangCache(SequenceCache):
    """SGLang's radix tree with pages of one token.

    Source: sgl-project/sglang, `mem_cache/radix_cache.py` and `mamba_radix_cache.py`, mid-2026; read
    (docs/servers.md, section 11). Where layers cannot be cut, prompts go on from where a prompt or its reply
    ended. A branch that gives way goes as a whole, up to where another one shares it.
    """

    kind = "sglang"
    shared = True

    def _snapshots(self, sequence: TokenSequence, match: Match, marks: PromptBoundaries) -> Iterable[int]:
        return () if marks.prompt_tokens is None else (marks.prompt_tokens,)


KINDS = (CacheKind(SglangCache.kind, of_sequences(SglangCache)),)
