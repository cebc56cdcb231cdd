"""The memory-sized caches of Rapid-MLX and vllm-mlx: whole prompts, sorted by their tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from .base import Block, Marks, Match, last_position
from .entries import PLAIN, End, Entry, EntryCache
from .layers import Layers
from .sequences import TokenSequence


class RapidMlxCache(EntryCache):
    """Rapid-MLX's default cache: equal, shorter, longer and parting prompts, recurrent layers from
    checkpoints.

    Source: raullenchai/Rapid-MLX 0.16.10 (October 2026), `memory_cache.py`, `hybrid_state_checkpoints.py` and
    `scheduler.py`; the lookup was run beside this one on random sequences without a difference, what is
    stored was read (docs/servers.md, section 4; docs/caches.md).

    Args:
        layers: what the model's layers keep.
        max_entries: the most sequences.
        max_uncut: the most sequences whose layers cannot be cut; the server's default for such models.
        capacity_bytes: as of `EntryCache`.
        bytes_per_token: as of `EntryCache`.
        snapshot_bytes: as of `EntryCache`.
    """

    kind = "rapid-mlx"
    drops_prefixes = False
    max_checkpoints = 4
    stride = 2048

    def __init__(
        self,
        layers: Layers = PLAIN,
        *,
        max_entries: int | None = 1000,
        max_uncut: int = 8,
        capacity_bytes: int | None = None,
        bytes_per_token: int | None = None,
        snapshot_bytes: int = 0,
    ) -> None:
        super().__init__(
            layers,
            max_entries=max_entries,
            capacity_bytes=capacity_bytes,
            bytes_per_token=bytes_per_token,
            snapshot_bytes=snapshot_bytes,
        )
        self.max_uncut = max_uncut
        self._anchors: set[int] = set()

    def _find(self, prompt: TokenSequence) -> tuple[Entry | None, int]:
        shared = [(entry, entry.ids.common(prompt)) for entry in self._entries]
        for entry, common in shared:
            if common == entry.length == prompt.length and self._cuttable(entry):
                return entry, prompt.length - 1
        prefix, most = longest_prefix(shared, prompt)
        longer = longest_continuation(shared, prompt)
        if longer is not None:
            if self._cuttable(longer):
                return longer, prompt.length - 1
            position = last_position(longer.checkpoints, prompt.length)
            if position > most:
                # The server finds the state at the prompt's end, cannot give up a token, and starts anew.
                return longer, position if position < prompt.length else 0
        near, common = neighbour(shared, prompt)
        if near is not None:
            position = common if self._cuttable(near) else last_position(near.checkpoints, common)
            if position > most:
                return near, position if position < prompt.length else 0
        return prefix, most

    def _ends(self, length: int, reused: int, marks: Marks) -> tuple[End, ...]:
        prompt = length if marks.prompt_tokens is None else marks.prompt_tokens
        boundary = marks.user_starts[-1] if marks.user_starts else 0
        if boundary > reused and not self.layers.sliceable:
            return (boundary, "boundary"), (length, "")
        return tuple((end, "") for end in sorted({prompt, length}))

    def _snapshots(self, sequence: TokenSequence, match: Match, marks: Marks) -> Iterable[int]:
        boundary = marks.user_starts[-1] if marks.user_starts else 0
        cold = not any(block.snapshot for block in match.blocks)
        if cold and boundary:
            self._anchors.add(boundary)
        newest = max((block.end for block in match.blocks if block.snapshot), default=0)
        stops = [match.reused, *([boundary] if boundary > match.reused else ()), sequence.length]
        positions = []
        for start, end in pairwise(stops):
            for at in range(start + self.stride, end, self.stride):
                if at - newest >= self.stride:
                    positions.append(at)
                    newest = at
            if end == boundary:
                positions.append(end)
                newest = end
        return positions

    def _inherited(self, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
        # The end of a whole sequence is where that one goes on from, but no checkpoint of those that continue
        # it.
        if blocks and any(entry.blocks[-1] is blocks[-1] and not entry.kind for entry in self._entries):
            return (*blocks[:-1], replace(blocks[-1], snapshot=False))
        return blocks

    def _thinned(self, blocks: Sequence[Block]) -> Sequence[Block]:
        """Keep four checkpoints: the one closest behind another goes, but no anchor and not the newest."""
        kept: list[int] = []
        for at in (block.end for block in blocks if block.snapshot):
            kept.append(at)
            if len(kept) > self.max_checkpoints:
                gaps = [(at - before, at) for before, at in zip([0, *kept], kept[:-1], strict=False)]
                kept.remove(min(gap for gap in gaps if gap[1] not in self._anchors)[1])
        return [replace(block, snapshot=block.end in kept) for block in blocks]

    def _insert(self, entry: Entry) -> None:
        equal = next((other for other in self._begun(entry) if other.length == entry.length), None)
        if equal is not None:
            self._use(equal, entry.ids)
            return
        self._make_room(entry)
        if not self._cuttable(entry):
            uncut = [other for other in self._entries if not self._cuttable(other)]
            for other in uncut[: max(0, len(uncut) - self.max_uncut)]:
                self._evict(other)


class VllmMlxCache(EntryCache):
    """vllm-mlx's default cache: shorter and parting prompts of at least 128 tokens.

    Source: waybarrios/vllm-mlx 0.6.0 (October 2026), `memory_cache.py` and `scheduler.py`; the lookup was run
    beside this one on random sequences without a difference, what is stored was read (docs/servers.md,
    section 5; docs/caches.md). A prompt that is there whole is prefilled again, and a shorter sequence is
    preferred to a parting one even where that shares more.

    Args:
        layers: what the model's layers keep.
        max_entries: the most sequences.
        min_tokens: what is shorter is neither stored nor looked up.
        capacity_bytes: as of `EntryCache`.
        bytes_per_token: as of `EntryCache`.
        snapshot_bytes: as of `EntryCache`.
    """

    kind = "vllm-mlx"
    #: A state that cannot be cut is stored again once a prompt has grown by more than this.
    refresh = 4096

    def __init__(
        self,
        layers: Layers = PLAIN,
        *,
        max_entries: int | None = 1000,
        min_tokens: int = 128,
        capacity_bytes: int | None = None,
        bytes_per_token: int | None = None,
        snapshot_bytes: int = 0,
    ) -> None:
        super().__init__(
            layers,
            max_entries=max_entries,
            capacity_bytes=capacity_bytes,
            bytes_per_token=bytes_per_token,
            snapshot_bytes=snapshot_bytes,
        )
        self.min_tokens = min_tokens

    def reusable(self, shared: int, length: int) -> int:
        """Return how much an unlimited cache takes over of `length` tokens, `shared` of them stored."""
        if shared < self.min_tokens or shared >= length:
            return 0
        found = super().reusable(shared, length)
        return found if found >= self.min_tokens else 0

    def _find(self, prompt: TokenSequence) -> tuple[Entry | None, int]:
        if prompt.length < self.min_tokens:
            return None, 0
        shared = [(entry, entry.ids.common(prompt)) for entry in self._entries]
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

    def _ends(self, length: int, reused: int, marks: Marks) -> tuple[End, ...]:
        if self.layers.sliceable_at(length):
            return ((length, ""),) if length >= self.min_tokens else ()
        prompt = length if marks.prompt_tokens is None else marks.prompt_tokens
        stale = not reused or prompt - reused > self.refresh
        return ((prompt, ""),) if stale and prompt >= self.min_tokens else ()

    def _insert(self, entry: Entry) -> None:
        begun = self._begun(entry)
        equal = next((other for other in begun if other.length == entry.length), None)
        if equal is not None:
            self._use(equal, entry.ids)
            return
        if not self._cuttable(entry):
            for other in begun:
                self._remove(other)
        self._make_room(entry)


class VllmMlxLegacyCache(EntryCache):
    """vllm-mlx's cache without `use_memory_aware_cache`: a sequence helps only where the prompt parts at its
    end.

    Source: waybarrios/vllm-mlx 0.6.0 (October 2026), `prefix_cache.py`; run beside this one on random
    sequences without a difference (docs/servers.md, section 5; docs/caches.md).

    Args:
        layers: what the model's layers keep.
        max_entries: the most sequences.
        capacity_bytes: as of `EntryCache`; the server itself has no such limit.
        bytes_per_token: as of `EntryCache`.
        snapshot_bytes: as of `EntryCache`.
    """

    kind = "vllm-mlx:legacy"
    drops_prefixes = False

    def __init__(
        self,
        layers: Layers = PLAIN,
        *,
        max_entries: int | None = 100,
        capacity_bytes: int | None = None,
        bytes_per_token: int | None = None,
        snapshot_bytes: int = 0,
    ) -> None:
        super().__init__(
            layers,
            max_entries=max_entries,
            capacity_bytes=capacity_bytes,
            bytes_per_token=bytes_per_token,
            snapshot_bytes=snapshot_bytes,
        )

    def reusable(self, shared: int, length: int) -> int:
        """Return how much an unlimited cache takes over where a whole sequence, or the prompt, is shared."""
        if shared < length:
            return shared
        cuttable = self._last is None or self._cuttable(self._last)
        return max(0, length - 1) if cuttable else 0

    def _find(self, prompt: TokenSequence) -> tuple[Entry | None, int]:
        shared = [(entry, entry.ids.common(prompt)) for entry in self._entries]
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

    def _use(self, entry: Entry, prompt: TokenSequence) -> None:
        if entry.length <= prompt.length:
            super()._use(entry, prompt)


def longest_prefix(shared: list[tuple[Entry, int]], prompt: TokenSequence) -> tuple[Entry | None, int]:
    """Return the longest sequence that a prompt begins with and goes on from, and its length."""
    prefixes = (entry for entry, common in shared if common == entry.length < prompt.length)
    longest = max(prefixes, key=lambda entry: entry.length, default=None)
    return longest, longest.length if longest else 0


def longest_continuation(shared: list[tuple[Entry, int]], prompt: TokenSequence) -> Entry | None:
    """Return the longest sequence that goes on from the whole prompt; among equals the first sorted."""
    best: Entry | None = None
    for entry, common in shared:
        if common == prompt.length < entry.length and (
            best is None
            or entry.length > best.length
            or (entry.length == best.length and entry.ids.before(best.ids))
        ):
            best = entry
    return best


def neighbour(shared: list[tuple[Entry, int]], prompt: TokenSequence) -> tuple[Entry | None, int]:
    """Return which of the two sequences sorted beside a prompt shares more with it, and how much.

    Where one is equal to the prompt, it stands in the place of the one behind, and is not taken.
    """
    before: tuple[Entry | None, int] = (None, 0)
    after: tuple[Entry | None, int] = (None, 0)
    for entry, common in shared:
        if entry.ids.before(prompt):
            if before[0] is None or before[0].ids.before(entry.ids):
                before = entry, common
        elif after[0] is None or entry.ids.before(after[0].ids):
            after = entry, common
    equal = after[0] is not None and after[0].length == after[1] == prompt.length
    best = after if after[1] > before[1] and not equal else before
    return best if best[1] else (None, 0)
