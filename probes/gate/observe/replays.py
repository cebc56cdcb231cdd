"""Transcripts for the gate: what their replays count under servers' policies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ....fixtures import DEFAULT_MODEL
from ...conversation import Transcript
from ...errors import InputError
from ...policies.base import Policy
from ...templates.template import ChatTemplate
from ..subject import Subject

if TYPE_CHECKING:
    from ...replay.replay_report import CacheInfo, TurnReport
    from ...tokenization.tokens import Tokenizer

_SUFFIXES = (".jsonl", ".json", ".har")


@dataclass(frozen=True, slots=True)
class ReplayNumbers:
    """What a replay counted.

    Attributes:
        transcript: the transcript's name.
        policy: the policy as it was named.
        turns: how many requests there are.
        raised: how many of them failed.
        prompt_tokens: tokens of all prompts (counted).
        prefills: per rendered turn, the tokens that had to be computed and those reused before (counted).
        avoidable: those that an append-only client and template would not have computed (counted).
        depth: fewest tokens shared at a turn that diverges from what is stored; None where none does.
        error: what the first failing turn raised.
        cache: what the turns were replayed against; None where that is not at hand.
    """

    transcript: str
    policy: str
    turns: int
    raised: int
    prompt_tokens: int
    prefills: tuple[tuple[int, int], ...]
    avoidable: int
    depth: int | None
    error: str | None
    cache: CacheInfo | None = None

    @property
    def rendered(self) -> int:
        """How many requests gave a prompt."""
        return self.turns - self.raised

    @property
    def reprefill(self) -> int:
        """How many tokens had to be computed (counted)."""
        return sum(tokens for tokens, _ in self.prefills)


@dataclass(frozen=True, slots=True)
class Replaying:
    """What transcripts are replayed with.

    Attributes:
        policies: each is replayed against an empty cache of its own, as its server keeps it.
        tokenizer: what counts the tokens.
        directory: a model's, whose config.json says what the layers keep; plain attention where it has none.
        block_size: tokens per block of a paged cache in the place of the servers' own; None for those.
    """

    policies: Sequence[Policy]
    tokenizer: Tokenizer
    directory: Path = DEFAULT_MODEL
    block_size: int | None = None


def transcripts_in(folder: Path) -> tuple[Path, ...]:
    """Return the transcripts of a folder, sorted; of a file or a pipe, itself.

    Raises:
        InputError: there is none.
    """
    if folder.exists() and not folder.is_dir():
        return (folder,)
    found = tuple(path for path in sorted(folder.glob("*")) if path.suffix in _SUFFIXES and path.is_file())
    if not found:
        what = "there are no transcripts in it" if folder.is_dir() else "no such file or folder"
        raise InputError(what, where=str(folder), fix=f"put {', '.join(_SUFFIXES)} files there")
    return found


def replay(
    name: str,
    transcript: Transcript,
    template: ChatTemplate,
    replaying: Replaying,
) -> Iterator[ReplayNumbers]:
    """Replay a transcript and yield the numbers under each policy.

    Raises:
        InputError: the transcript or the model's config.json cannot be read.
        UsageError: a server's cache does not take such a model.
    """
    from ...models.model import ReplayModel
    from ...replay.replay import Replay

    model = ReplayModel(
        template, replaying.tokenizer, template.source, "template", True, replaying.directory, None
    )
    run = Replay(transcript, model, replaying.policies, block_size=replaying.block_size, causes=False)
    for _ in run.turns():
        pass
    for policy in run.report().policies:
        depths = [turn.divergence.tokens for turn in policy.turns if turn.divergence is not None]
        errors = [turn.error for turn in policy.turns if turn.error is not None]
        yield ReplayNumbers(
            name,
            policy.policy,
            len(policy.turns),
            len(errors),
            policy.totals.prompt_tokens,
            tuple(_prefill(turn) for turn in policy.turns if turn.error is None),
            policy.totals.avoidable,
            min(depths, default=None),
            errors[0] if errors else None,
            policy.server_cache,
        )


def _prefill(turn: TurnReport) -> tuple[int, int]:
    assert turn.reprefill is not None and turn.reused is not None  # only a turn that failed has neither
    return turn.reprefill, turn.reused


def replayed(numbers: ReplayNumbers) -> Subject:
    """Return what reports call a transcript's numbers under a policy."""
    return Subject("replay", named(numbers.transcript), numbers.policy)


def named(transcript: str) -> str:
    """Return a transcript's name for reports, in whose texts `:` and `@` mean something else."""
    return re.sub("[:@]", "_", Path(transcript).name)
