"""The replay: request -> policy -> prompt -> cache -> cost -> turn, under several policies side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from .. import __version__
from .caches.base import Match, PrefixCache
from .caches.paged import PagedCache
from .causes.reasoning import reasoning_lost
from .conversation import Request, Transcript, written_alike
from .divergence import Comparison, Prompt, divergence, since_previous
from .errors import RenderError
from .explanation import Explanation, explanation
from .losses import losses
from .models import ReplayModel
from .policies.base import Action, Policy, Prepared, render_prepared
from .rendering import Profile
from .replay_findings import replay_findings
from .report import (
    SCHEMA,
    CacheCounts,
    CacheInfo,
    Cost,
    PolicyReport,
    ReplayReport,
    Timings,
    TurnReport,
    VerifyReport,
    totals,
)
from .sequences import StoredSequences
from .summary import summarise
from .tokens import IncrementalEncoder

if TYPE_CHECKING:
    from .caches.states import StateBlock
    from .mlx_engine import MLXEngine, Verification
    from .tokens import Ids

#: Prompts between two comparisons with whole-text encoding; the last prompt is always compared.
_CHECK_EVERY = 500


class Replay:
    """One replay of a transcript. `turns` runs it; `report` tells what has run so far.

    Args:
        transcript: the requests.
        model: template, tokenizer and, with `engine`, the weights.
        policies: each is replayed against an empty cache of its own.
        block_size: tokens per cache block.
        engine: the model that computes, or None to count tokens only.
        capacity_bytes: the most that a cache may hold, or None for no limit.
        verify: compare each prefill from restored blocks with a cold one; needs `engine`.
        causes: look for the cause of each divergence.
    """

    def __init__(
        self,
        transcript: Transcript,
        model: ReplayModel,
        policies: Sequence[Policy],
        *,
        block_size: int = 256,
        engine: MLXEngine | None = None,
        capacity_bytes: int | None = None,
        verify: bool = False,
        causes: bool = True,
    ) -> None:
        self.transcript = transcript
        self.model = model
        self.engine = engine
        self.capacity_bytes = capacity_bytes
        self.bytes_per_token = engine.bytes_per_token if engine else model.bytes_per_token
        self.verifications: list[Verification] | None = [] if verify else None
        self.causes = causes
        self._block_size = block_size
        self._without_reasoning: list[int] = []
        self._runs = [_PolicyRun(policy, self) for policy in policies]

    def turns(self) -> Iterator[tuple[TurnReport, ...]]:
        """Replay one request after the other; yields its turn under each policy, in the order given.

        Raises:
            InputError: the transcript cannot be read further; what has run stays in `report`.
        """
        previous: Request | None = None
        for number, request in enumerate(self.transcript, 1):
            if previous is not None:
                request = request.sharing(previous)
                if reasoning_lost(previous, request):
                    self._without_reasoning.append(number)
            previous = request
            rendered: list[tuple[Prepared, str, Ids]] = []
            done = [run.turn(number, request, rendered) for run in self._runs]
            for run, turn in zip(self._runs, done, strict=True):
                run.turns.append(turn)
            yield tuple(done)

    def report(self, *, complete: bool = True, error: str | None = None) -> ReplayReport:
        """Return the report of the turns that have run."""
        policies = tuple(run.report() for run in self._runs)
        return ReplayReport(
            schema=SCHEMA,
            tplaudit=__version__,
            transcript=self.transcript.source,
            template=self.model.template.source,
            model=self.model.info(self.engine),
            cache=CacheInfo("paged", self._block_size, self.capacity_bytes, self.bytes_per_token),
            engine="mlx" if self.engine else "tokens",
            policies=policies,
            verify=self._verify_report(),
            notes=(*self.model.notes, *self._encoder_notes()),
            complete=complete,
            error=error,
            findings=tuple(
                finding for policy in policies for finding in replay_findings(policy, self._without_reasoning)
            ),
        )

    def new_cache(self) -> PrefixCache:
        """Return an empty cache."""
        return PagedCache(
            self._block_size, capacity_bytes=self.capacity_bytes, bytes_per_token=self.bytes_per_token
        )

    def _encoder_notes(self) -> tuple[str, ...]:
        for run in self._runs:
            run.encoder.check()
        reasons = dict.fromkeys(run.encoder.fallback_reason for run in self._runs)
        return tuple(f"prompts are encoded whole: {reason}" for reason in reasons if reason)

    def _verify_report(self) -> VerifyReport | None:
        if self.verifications is None:
            return None
        from .mlx_engine import tolerance

        difference = max((one.difference for one in self.verifications), default=0.0)
        noise = max((one.noise for one in self.verifications), default=0.0)
        equal = all(one.argmax_equal for one in self.verifications)
        return VerifyReport(
            checked_turns=len(self.verifications),
            max_abs_logit_difference=difference,
            cold_noise=noise,
            argmax_equal=equal,
            passed=equal and difference <= tolerance(noise),
        )


class _PolicyRun:
    """One policy's side of a replay."""

    def __init__(self, policy: Policy, replay: Replay) -> None:
        self.policy = policy
        self.turns: list[TurnReport] = []
        self.encoder = IncrementalEncoder(replay.model.tokenizer, check_every=_CHECK_EVERY)
        self._replay = replay
        self._cache = replay.new_cache()
        self._stored = StoredSequences()
        self._requests: dict[int, _Sent] = {}
        self._previous: Prompt | None = None
        self._looked_up: list[int] = []

    def turn(self, number: int, request: Request, rendered: list[tuple[Prepared, str, Ids]]) -> TurnReport:
        """Replay one request.

        Args:
            number: the turn.
            request: what the client sent.
            rendered: what this turn's other policies rendered; equal conversations share text and ids.
        """
        prepared = self.policy.prepare(request, self._replay.model.template)
        try:
            prompt = self._prompt(number, request, prepared, rendered)
            report = self._replayed(prompt)
        except RenderError as error:
            self._previous = None
            return TurnReport(number, len(request.messages), actions=prepared.actions, error=str(error))
        self._previous = prompt
        return report

    def report(self) -> PolicyReport:
        """Return the report of the turns so far."""
        turns = tuple(self.turns)
        counts = self._cache.statistics
        return PolicyReport(
            policy=self.policy.name,
            turns=turns,
            totals=totals(turns),
            cache=CacheCounts(
                hits=counts.hits,
                misses=counts.misses,
                stored_blocks=counts.stored_blocks,
                evicted_blocks=counts.evicted_blocks,
                blocks=counts.blocks,
                bytes=counts.bytes,
            ),
            summary=summarise(turns, self._cache.block_size),
        )

    def _prompt(
        self,
        number: int,
        request: Request,
        prepared: Prepared,
        rendered: list[tuple[Prepared, str, Ids]],
    ) -> Prompt:
        template = self._replay.model.template
        same = next((entry for entry in rendered if _same_input(entry[0], prepared)), None)
        if same is None:
            text, prepared = render_prepared(prepared, template)
            ids = self.encoder.encode(text)
            rendered.append((prepared, text, ids))
        else:
            _, text, ids = same
        return Prompt(
            number, request, prepared.request, text, ids, template, prepared.profile, prepared.actions
        )

    def _replayed(self, prompt: Prompt) -> TurnReport:
        ids = prompt.ids
        if not len(ids):
            raise RenderError("EmptyPrompt", "the template renders nothing")
        closest = self._stored.closest(ids)
        stored_length = self._stored.last_length
        compared = Comparison(self._previous, prompt) if self._previous else None
        stored = compared
        if not closest.whole and closest.turn is not None and not _is_of(compared, closest.turn):
            stored = Comparison(self._prompt_of(closest.turn), prompt)
        why = self._explained(compared)
        parted = None
        if not closest.whole and stored is not None:
            parted = divergence(
                stored, self._cache.block_size, why if stored is compared else self._explained(stored)
            )
        match = self._cache.match(ids)
        self._looked_up.append(prompt.turn)
        with self._cache.hold(match):
            cost = self._prefill(ids, match)
        self._stored.add(prompt.turn, ids)
        self._requests[prompt.turn] = _Sent(prompt.client, prompt.rendered, prompt.actions, prompt.profile)
        reprefill = len(ids) - match.reused
        unavoidable = max(1, len(ids) - self._cache.reusable(min(stored_length, len(ids)), len(ids)))
        return TurnReport(
            turn=prompt.turn,
            messages=len(prompt.client.messages),
            prompt_tokens=len(ids),
            depth=closest.shared,
            divergence=parted,
            since_previous=since_previous(compared, why) if compared else None,
            reused=match.reused,
            reprefill=reprefill,
            unavoidable=unavoidable,
            avoidable=max(0, reprefill - unavoidable),
            losses=losses(self._cache, match, closest.shared, len(ids), self._looked_up),
            cost=cost,
            actions=prompt.actions,
        )

    def _explained(self, compared: Comparison | None) -> Explanation | None:
        if compared is None or not self._replay.causes:
            return None
        return explanation(compared, self.policy, self.encoder)

    def _prompt_of(self, turn: int) -> Prompt:
        """Render the prompt of an earlier turn again."""
        sent, template = self._requests[turn], self._replay.model.template
        text = template.render_request(sent.rendered, profile=sent.profile)
        ids = self.encoder.fork().encode(text)
        return Prompt(turn, sent.client, sent.rendered, text, ids, template, sent.profile, sent.actions)

    def _prefill(self, ids: Ids, match: Match) -> Cost | None:
        """Compute what the cache does not have, and store the prompt."""
        engine = self._replay.engine
        if engine is None:
            self._cache.store(ids)
            return None
        done = engine.prefill(
            ids,
            [cast("StateBlock", block.payload) for block in match.blocks],
            match.reused,
            block_size=self._cache.block_size,
        )
        self._cache.store(ids, done.payloads)
        if self._replay.verifications is not None:
            self._replay.verifications.append(engine.verify(ids, done.logits))
        return Cost(done.seconds, "measured", measured=Timings(done.restore_seconds, done.store_seconds))


@dataclass(frozen=True, slots=True)
class _Sent:
    """What it takes to render an earlier turn's prompt again."""

    client: Request
    rendered: Request
    actions: tuple[Action, ...]
    profile: Profile


def _is_of(compared: Comparison | None, turn: int) -> bool:
    return compared is not None and compared.earlier.turn == turn


def _same_input(one: Prepared, other: Prepared) -> bool:
    """Tell whether two policies' requests render alike because they are the same, key order included."""
    first, second = one.request, other.request
    return (
        one.error is other.error is None
        and one.profile == other.profile
        and first.now == second.now
        and first.partial == second.partial
        and written_alike(first.tools, second.tools)
        and written_alike(first.kwargs, second.kwargs)
        and len(first.messages) == len(second.messages)
        and all(written_alike(a.data, b.data) for a, b in zip(first.messages, second.messages, strict=True))
    )
