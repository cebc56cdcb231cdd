"""Transcripts for the gate: replay numbers under servers' policies, and prompts turn by turn."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....fixtures import DEFAULT_MODEL
from ...conversation import Message, Request, Transcript
from ...errors import InputError
from ...policies.base import Policy, Prepared, render_prepared
from ...templates.template import ChatTemplate
from ..compare.compare_prompts import compare_prompt
from ..compare.differences import Difference, Kind
from .prompts import PromptOutline, Turns

if TYPE_CHECKING:
    from ...replay.replay_report import CacheInfo, TurnReport
    from ...tokenization.tokens import Tokenizer

#: Shorter texts say too little about which message they belong to.
_SHORTEST_TEXT = 12
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
        depth: fewest tokens shared at a turn that parts from what is stored; None where none does.
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

    Args:
        name: what a person calls the transcript.
        transcript: its requests.
        template: the template.
        replaying: policies, tokenizer and caches.

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


def compare_replays(base: ReplayNumbers, head: ReplayNumbers) -> Iterator[Difference]:
    """Yield what became better or worse in a transcript's replay.

    Avoidable tokens are compared where the same number of turns failed: a turn that raises costs nothing.
    """
    subject = f"{replay_check(head)}@{head.policy}"
    if base.raised != head.raised:
        worse = head.raised > base.raised
        yield Difference(
            "regressed" if worse else "fixed",
            "replay-raises",
            subject,
            str(base.raised),
            str(head.raised),
            detail=head.error if worse else base.error,
        )
    elif base.avoidable != head.avoidable and head.rendered:
        kind: Kind = "regressed" if head.avoidable > base.avoidable else "fixed"
        yield Difference(kind, "replay-avoidable", subject, str(base.avoidable), str(head.avoidable))


def replay_check(numbers: ReplayNumbers) -> str:
    """Return the subject of a transcript's numbers."""
    return f"replay/{named(numbers.transcript)}"


def named(transcript: str) -> str:
    """Return a transcript's name within a subject, in which `:` and `@` mean something else."""
    return re.sub("[:@]", "_", Path(transcript).name)


def compare_transcript(
    transcript: Transcript,
    base: ChatTemplate,
    head: ChatTemplate,
    policy: Policy,
    told: frozenset[str],
    now: datetime,
) -> Iterator[tuple[int, list[Difference]]]:
    """Compare the prompts of a transcript, turn by turn, where the policy makes the same of both templates.

    Yields:
        Whether anything was rendered, as 1 or 0, and the differences, for each turn.

    Raises:
        InputError: the transcript cannot be read.
    """
    subject = f"transcript/{named(transcript.source)}"
    sides = [_Side(template, policy, now) for template in (base, head)]
    for request in transcript:
        before, after = (side.prompt(request) for side in sides)
        if before is None or after is None or not _same(sides[0].last, sides[1].last):
            continue
        found = list(compare_prompt(subject, before, after, told, sides[1].line))
        yield int(before.rendered or after.rendered), found


class _Side:
    """One template's prompts of a transcript."""

    def __init__(self, template: ChatTemplate, policy: Policy, now: datetime) -> None:
        self.template = template
        self.last: Prepared | None = None
        self._policy = policy
        self._now = now
        self._turns = Turns(self._write, _texts)

    def prompt(self, request: Request) -> PromptOutline | None:
        """Render the next request; None where the server does not take it."""
        request = request.replace(now=request.now or self._now)
        prepared = self.last = self._policy.prepare(request, self.template)
        return None if prepared.error is not None else self._turns.prompt(prepared.request)

    def line(self, prompt: PromptOutline, offset: int) -> int | None:
        """Find the template line that wrote a character of a prompt."""
        assert self.last is not None
        if prompt.request is None:
            return None
        return self.template.chunk_at(prompt.request, offset, profile=self.last.profile).line

    def _write(self, request: Request, prompted: bool) -> str:
        assert self.last is not None
        if prompted:
            text, self.last = render_prepared(self.last, self.template)
            return text
        return self.template.render_request(
            self.last.request, add_generation_prompt=False, profile=self.last.profile
        )


def _same(one: Prepared | None, other: Prepared | None) -> bool:
    """Tell whether a policy made the same of a request for both templates."""
    if one is None or other is None:
        return False
    first, second = one.request, other.request
    return (
        [message.data for message in first.messages] == [message.data for message in second.messages]
        and first.tools == second.tools
        and first.kwargs == second.kwargs
        and one.profile == other.profile
    )


def _texts(message: Message) -> Sequence[str]:
    """Return the texts of a message that have to stand in a prompt; not reasoning between think tags."""
    content: Any = message.content
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    plain = (
        re.sub(r"<think>.*?</think>", "", text, flags=re.DOTALL).strip()
        for text in texts
        if isinstance(text, str)
    )
    return [text for text in plain if len(text) >= _SHORTEST_TEXT]


def placements_told(differences: Sequence[Difference]) -> frozenset[str]:
    """Return the placements, as `tool/tail`, of which differences tell."""
    return frozenset(
        each.place.pair for each in differences if each.place is not None and ":" not in each.subject
    )
