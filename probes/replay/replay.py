"""The replay: request -> policy -> prompt -> cache -> cost -> turn, under several policies side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np

from ... import __version__
from ..attribution.prompt import Prompt
from ..caches.base import Match, PrefixCache
from ..caches.prompt_boundaries import BoundaryFinder
from ..caches.registry import server_cache
from ..caches.stored_reply import Reply, Store, opens_thinking, reply_of, stored_length, stores_thinking
from ..caches.stored_sequences import StoredSequences
from ..causes.reasoning import reasoning_lost
from ..conversation import Request, Transcript, written_alike
from ..cost.cost_report import Cost
from ..cost.prefill_timer import PrefillTimer
from ..errors import RenderError
from ..models.layers import Layers
from ..models.model import ReplayModel
from ..policies.base import Action, Policy, Prepared, render_prepared
from ..templates.rendering import Profile
from ..tokenization.tokens import IncrementalEncoder
from .cache_misses import cache_misses
from .comparison import Comparison
from .divergence import divergence, reply_divergence, since_previous
from .explanation import Explanation, explanation
from .findings import replay_findings
from .replay_report import (
    SCHEMA,
    CacheCounts,
    CacheInfo,
    PolicyReport,
    ReplayReport,
    StoredReply,
    TurnReport,
    VerifyReport,
    model_info,
)
from .summary import summarise
from .totals import totals

if TYPE_CHECKING:
    from ..caches.stored_sequences import Closest
    from ..cost.cost_model import CostModel
    from ..engine.mlx_engine import MLXEngine, Verification
    from ..engine.states import StateLayout
    from ..models.state_size import StateSize
    from ..tokenization.tokens import Ids
    from .replay_report import Divergence

#: Prompts between two comparisons with whole-text encoding; the last prompt is always compared.
_CHECK_EVERY = 500


class Replay:
    """One replay of a transcript. `turns` runs it; `report` tells what has run so far.

    Args:
        transcript: the requests.
        model: template, tokenizer and, with `engine`, the weights.
        policies: each is replayed against an empty cache of its own.
        block_size: tokens per block of a paged cache; None for the cache of each policy's server.
        engine: the model that computes, or None to count tokens only.
        layout: what the model's state takes, where no engine tells; None for what its config.json tells.
        capacity_bytes: the most that a cache may hold, or None for no limit.
        store: whether the replies of the transcript are stored behind their prompts.
        prefilling: what runs or predicts the prefills; None for the engine, where there is one, without a
            limit.
        verify: compare each prefill from restored blocks with a cold one; needs `engine`.
        causes: look for the cause of each divergence.
    """

    def __init__(
        self,
        transcript: Transcript,
        model: ReplayModel,
        policies: Sequence[Policy],
        *,
        block_size: int | None = None,
        engine: MLXEngine | None = None,
        capacity_bytes: int | None = None,
        store: Store = "prompt",
        prefilling: PrefillTimer | None = None,
        layout: StateSize | StateLayout | None = None,
        verify: bool = False,
        causes: bool = True,
    ) -> None:
        self.transcript = transcript
        self.model = model
        self.engine = engine
        self.capacity_bytes = capacity_bytes
        self.store = store
        self.prefilling = prefilling or PrefillTimer(engine)
        kept = layout or (engine.layout if engine else model.state_size)
        self.model_kind = kept.kind
        self.sizes = kept.sizes
        self.verifications: list[Verification] | None = [] if verify else None
        self.causes = causes
        self._block_size = block_size
        self._without_reasoning: list[int] = []
        self._sent: list[datetime] = []
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
            if request.sent:
                self._sent.append(request.sent)
            rendered: list[tuple[Prepared, str, Ids]] = []
            done = [run.turn(number, request, rendered) for run in self._runs]
            for run, turn in zip(self._runs, done, strict=True):
                run.turns.append(turn)
            yield tuple(done)

    def report(self, *, complete: bool = True, error: str | None = None) -> ReplayReport:
        """Return the report of the turns that have run."""
        hours = self._hours()
        cost = self.prefilling.cost
        policies = tuple(run.report(cost, hours) for run in self._runs)
        return ReplayReport(
            schema=SCHEMA,
            tplaudit=__version__,
            transcript=self.transcript.source,
            template=self.model.template.source,
            model=model_info(self.model, self.engine),
            cache=policies[0].server_cache,
            engine="mlx" if self.engine else "tokens",
            policies=policies,
            verify=self._verify_report(),
            notes=(*self.model.notes, *self._encoder_notes(), *self.prefilling.notes),
            complete=complete,
            error=error,
            findings=tuple(
                finding for policy in policies for finding in replay_findings(policy, self._without_reasoning)
            ),
            prefill_rate=self.prefilling.rate,
            prediction=self.prefilling.prediction(),
            hours=hours,
        )

    @property
    def finished(self) -> int:
        """The number of turns that have run under every policy."""
        return len(self._runs[-1].turns)

    def new_cache(self, policy: Policy) -> PrefixCache:
        """Return an empty cache as a policy's server keeps it."""
        return server_cache(
            policy,
            model_kind=self.model_kind,
            block_size=self._block_size,
            capacity_bytes=self.capacity_bytes,
            sizes=self.sizes,
        )

    def _hours(self) -> float | None:
        """Return the length of the session so far by the transcript's clock; None where there is none."""
        zoned = {moment.tzinfo is None for moment in self._sent}
        if len(zoned) != 1:
            return None  # no time, or some that cannot be compared
        return (max(self._sent) - min(self._sent)).total_seconds() / 3600 or None

    def _encoder_notes(self) -> tuple[str, ...]:
        for run in self._runs:
            run.encoder.check()
        reasons = dict.fromkeys(run.encoder.fallback_reason for run in self._runs)
        return tuple(f"prompts are encoded whole: {reason}" for reason in reasons if reason)

    def _verify_report(self) -> VerifyReport | None:
        if self.verifications is None:
            return None
        from ..engine.mlx_engine import tolerance

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
        self._cache = replay.new_cache(policy)
        self._marks = BoundaryFinder(self.encoder, Layers.of(replay.model_kind))
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

    def report(self, cost: CostModel | None, hours: float | None) -> PolicyReport:
        """Return the report of the turns so far; see `totals` for the arguments."""
        turns = tuple(self.turns)
        counts = self._cache.statistics
        return PolicyReport(
            policy=self.policy.name,
            turns=turns,
            totals=totals(turns, cost, hours),
            cache=CacheCounts(
                hits=counts.hits,
                misses=counts.misses,
                stored_blocks=counts.stored_blocks,
                evicted_blocks=counts.evicted_blocks,
                blocks=counts.blocks,
                bytes=counts.bytes,
            ),
            summary=summarise(turns, self._cache.block_size),
            server_cache=CacheInfo(
                kind=self._cache.kind,
                block_size=self._cache.block_size,
                capacity_bytes=self._replay.capacity_bytes,
                bytes_per_token=self._replay.sizes.bytes_per_token if self._replay.sizes else None,
                store=self._replay.store,
                layers=self._replay.model_kind,
            ),
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
        last_length = self._stored.last_length
        compared = Comparison(self._previous, prompt) if self._previous else None
        why = self._explained(compared)
        parted = self._parted(prompt, closest, compared, why)
        match = self._cache.match(ids)
        self._looked_up.append(prompt.turn)
        # Asked before this prompt is stored: where states were copied, the last sequence's positions count.
        unavoidable = max(1, len(ids) - self._cache.reusable(min(last_length, len(ids)), len(ids)))
        lost = cache_misses(self._cache, match, closest.shared, len(ids), self._looked_up)
        reply, output = self._reply(prompt)
        with self._cache.pin(match):
            cost = self._prefill(prompt, output, match)
        self._stored.add(prompt.turn, np.concatenate([ids, output]) if len(output) else ids)
        self._requests[prompt.turn] = _Sent(
            prompt.client, prompt.rendered, prompt.actions, prompt.profile, reply, len(output)
        )
        reprefill = len(ids) - match.reused
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
            losses=lost,
            cost=cost,
            actions=prompt.actions,
            reply=StoredReply(len(output), reply.source) if reply else None,
        )

    def _parted(
        self, prompt: Prompt, closest: Closest, compared: Comparison | None, why: Explanation | None
    ) -> Divergence | None:
        """Report where a prompt parts from the closest stored sequence.

        Args:
            prompt: the prompt.
            closest: that sequence.
            compared: the previous prompt and this one.
            why: why these part.
        """
        if closest.fully_matched or closest.turn is None:
            return None
        stored = compared
        if stored is None or not _is_of(stored, closest.turn):
            stored = Comparison(self._prompt_of(closest.turn), prompt)
        sent, size = self._requests[closest.turn], self._cache.block_size
        if sent.reply and sent.output and stored.is_prefix and stored.tokens == len(stored.earlier.ids):
            if closest.shared == len(prompt.ids):
                return None  # the same prompt again: it ends where the reply begins, and parts from nothing
            return reply_divergence(
                stored, sent.reply, sent.output, closest.shared, size, causes=self._replay.causes
            )
        return divergence(stored, size, why if stored is compared else self._explained(stored))

    def _reply(self, prompt: Prompt) -> tuple[Reply | None, Ids]:
        """Return a prompt's reply, and what of its ids the server stores; nothing where it stores prompts."""
        replay = self._replay
        nothing = prompt.ids[:0]
        if replay.store == "prompt":
            return None, nothing
        reply = reply_of(prompt, self.policy, replay.model.tokenizer)
        if reply is None:
            return None, nothing
        length = stored_length(
            len(prompt.ids),
            len(reply.ids),
            replay.store,
            open_think=opens_thinking(prompt),
            output_cacheable=stores_thinking(self._cache.kind, replay.model.template, prompt),
        )
        return reply, reply.ids[: length - len(prompt.ids)]

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

    def _prefill(self, prompt: Prompt, output: Ids, match: Match) -> Cost | None:
        """Compute what the cache does not have, and store the prompt and what follows it."""
        prefilling, ids = self._replay.prefilling, prompt.ids
        marks = self._marks.read(prompt, replied=bool(len(output)))
        sequence = np.concatenate([ids, output]) if len(output) else ids
        done = None
        if prefilling.runs:
            done = prefilling.run(ids, output, match, self._cache.spans(sequence, match, marks))
        if done is None:
            self._cache.store(sequence, match=match, marks=marks)
            return prefilling.predicted(len(ids) - match.reused, match.reused)
        payloads, logits, cost = done
        self._cache.store(sequence, payloads, match=match, marks=marks)
        if self._replay.verifications is not None and (verified := prefilling.verify(ids, logits)):
            self._replay.verifications.append(verified)
        return cost


@dataclass(frozen=True, slots=True)
class _Sent:
    """What it takes to render an earlier turn's prompt again."""

    client: Request
    rendered: Request
    actions: tuple[Action, ...]
    profile: Profile
    reply: Reply | None
    output: int


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
