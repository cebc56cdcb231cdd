"""mlx-vlm's APC cache for models whose layers cannot all be cut: a few whole prompts."""

from __future__ import annotations

from ..base import PromptBoundaries, last_position
from ..sequence_cache import End, SequenceCache, SequenceEntry
from ..sequences import TokenSequence

BLOCK_SIZE = 16


class MlxVlmSnapshots(SequenceCache):
    """Snapshots of the last two prompts, each without its last token, reused where a prompt begins with one.

    Source: Blaizzy/mlx-vlm 0.7.10 (October 2026), `apc.py`; read (docs/servers.md, section 6;
    docs/caches.md). Plain layers are kept in blocks of 16.
    """

    kind = "mlx-vlm"
    drops_prefixes = False
    max_entries = 2
    #: What is shorter is not stored.
    min_tokens = 16

    def reusable(self, shared: int, length: int) -> int:
        """Return the end of the snapshot stored last, if it is shared and within the prompt."""
        return last_position((self._last.length if self._last else 0,), min(shared, length - 1))

    def _resume(self, entry: SequenceEntry, prompt: TokenSequence) -> int:
        return entry.length if entry.ids.common(prompt) == entry.length < prompt.length else 0

    def _ends(self, length: int, reused: int, marks: PromptBoundaries) -> tuple[End, ...]:
        prompt = length if marks.prompt_tokens is None else marks.prompt_tokens
        return ((prompt - 1, ""),) if prompt - 1 >= self.min_tokens else ()
