"""The replay: request -> policy -> prompt -> cache -> cost -> turn, under several policies side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ... import __version__
from ..attribution.kept_tokens import kept_tokens
from ..attribution.prompt import Prompt
from ..caches.base import Match, PrefixCache, PromptBoundaries
from ..caches.registry import server_cache
from ..caches.stored_reply import Reply, Store
from ..caches.stored_sequences import StoredSequences
from ..causes.changes import changes, drops_reasoning
from ..causes.reasoning import is_reasoning_item, reasoning_lost
from ..conversation import Request, Transcript
from ..cost.cost_report import Cost
from ..cost.prefill_timer import PrefillTimer
from ..errors import RenderError
from ..models.model import ReplayModel
from ..policies.base import Policy, Prepared, render_prepared
from ..policies.registry import shifts_states
from ..transcripts.grouping.arrival import in_order_of_arrival
from ..transcripts.grouping.conversations import Continuation, Conversations
from .actual.agreement import ArrivedTurn, Trials, agreement, with_actual, with_better_policies
from .actual.policy_prompts import PolicyPrompts
from .compactions import compaction_findings
from .explanations.comparison import Comparison
from .explanations.divergence import divergence, reply_divergence, since_previous
from .explanations.explanation import Explanation, StoredReplyIds, explained_tokens, explanation
from .explanations.raised_turn import RaiseExplainer
from .findings import replay_findings
from .lone_caches import Step
from .replay_report import (
    SCHEMA,
    Agreement,
    CacheCounts,
    CacheInfo,
    ClosestSequence,
    PolicyReport,
    ReplayReport,
    StoredReply,
    TurnReport,
    VerifyReport,
    model_info,
)
from .session_caches import NewCache, PrefillPrice, SessionCaches, StoredTurn
from .shared_heads import Head, head_chars, shared_head_findings
from .summary import failure_of, summarise
from .totals import conversation_reports, totals

if TYPE_CHECKING:
    from ..cost.cost_model import CostModel
    from ..engine.mlx_engine import MLXEngine, Verification
    from ..engine.states import StateLayout
    from ..models.state_size import StateSize
    from ..tokenization.tokens import Ids
    from .actual.server_log import ServerLog
    from .replay_report import Divergence


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
        compare: put what the server said of its reuse beside what is counted.
        log: the server's log, for that; None for what the transcript's answers say.
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
        compare: bool = True,
        log: ServerLog | None = None,
    ) -> None:
        self.transcript = transcript
        self.model = model
        self.engine = engine
        self.capacity_bytes = capacity_bytes
        self.store = store
        self.prefilling = prefilling or PrefillTimer(engine)
        kept = layout or (engine.layout if engine else model.state_size)
        self._layout = kept
        self.model_kind = kept.kind
        self.sizes = kept.sizes
        self._aligned_block = model.state_size.aligned_block
        self.verifications: list[Verification] | None = [] if verify else None
        self.causes = causes
        self.compare = compare
        self.log = log
        self._block_size = block_size
        self.conversations = Conversations()
        self.requests: dict[int, Request] = {}
        self._without_reasoning: list[int] = []
        self._sent: list[datetime] = []
        self._runs = [_PolicyRun(policy, self) for policy in policies]

    def turns(self) -> Iterator[tuple[TurnReport, ...]]:
        """Replay one request after the other, as they arrived; yields its turn under each policy.

        Raises:
            InputError: the transcript cannot be read further; what has run stays in `report`.
        """
        for continuation, request in in_order_of_arrival(self.transcript, self.conversations):
            number = continuation.turn
            self.requests[number] = request
            predecessor = self.requests.get(continuation.predecessor or 0)
            if predecessor is not None and reasoning_lost(predecessor, request):
                self._without_reasoning.append(number)
            if request.sent:
                self._sent.append(request.sent)
            rendered: list[tuple[Prepared, str, Ids]] = []
            done = [run.turn(request, continuation, rendered) for run in self._runs]
            for run, turn in zip(self._runs, done, strict=True):
                run.turns.append(turn)
            yield tuple(done)

    def report(self, *, complete: bool = True, error: str | None = None) -> ReplayReport:
        """Return the report of the turns that have run."""
        hours = self._hours()
        cost = self.prefilling.cost
        policies = with_better_policies([run.report(cost, hours) for run in self._runs])
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
                finding
                for policy, run in zip(policies, self._runs, strict=True)
                for finding in (
                    *replay_findings(policy, self._without_reasoning),
                    *compaction_findings(policy, self.requests),
                    *shared_head_findings(policy, run.heads, self.requests),
                )
            ),
            prefill_rate=self.prefilling.rate,
            prediction=self.prefilling.prediction(),
            hours=hours,
        )

    def again(
        self,
        transcript: Transcript,
        policies: Sequence[Policy],
        *,
        block_size: int | None = None,
        unlimited: bool = False,
    ) -> Replay:
        """Return a replay of the same kind that only counts, of other requests or under other policies.

        Args:
            transcript: the requests.
            policies: the policies.
            block_size: other blocks; None for those of this replay.
            unlimited: whether the caches have no limit.
        """
        return Replay(
            transcript,
            self.model,
            policies,
            block_size=block_size or self._block_size,
            capacity_bytes=None if unlimited else self.capacity_bytes,
            store=self.store,
            layout=self._layout,
            causes=False,
            compare=False,
        )

    def with_other_cache(
        self, policy: str, *, block_size: int | None = None, unlimited: bool = False
    ) -> tuple[TurnReport, ...]:
        """Return what a policy's turns prefill with another cache, from the ids that they have: only counted.

        Args:
            policy: one of the policies, which has run to the end.
            block_size: as of `again`.
            unlimited: as of `again`.
        """
        run = next(run for run in self._runs if run.policy.name == policy)
        other = self.again(self.transcript, [run.policy], block_size=block_size, unlimited=unlimited)
        return tuple(run.counted_again(partial(other.new_cache, run.policy)))

    @property
    def finished(self) -> int:
        """The number of turns that have run under every policy."""
        return len(self._runs[-1].turns)

    def new_cache(self, policy: Policy, *, limited: bool = True) -> PrefixCache:
        """Return an empty cache as a policy's server keeps it, or one that keeps everything."""
        cache = server_cache(
            policy,
            model_kind=self.model_kind,
            block_size=self._block_size,
            capacity_bytes=self.capacity_bytes if limited else None,
            sizes=self.sizes if limited else None,
            aligned_block=self._aligned_block,
        )
        if not limited:
            cache.lift_limits()
        return cache

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
        self.heads: list[Head] = []
        self._replay = replay
        self._stored = StoredSequences()
        self._kept: dict[int, _KeptPrompt] = {}
        self._stand_ins: dict[int, int | None] = {}
        self._prompts: dict[int, Prompt] = {}
        self._raises = RaiseExplainer(policy, replay.model.template)
        # Servers that move states move those of plain layers only.
        shifts = shifts_states(policy.name) and replay.model_kind == "plain"
        self._caches = SessionCaches(partial(replay.new_cache, policy), self._stored.sequence, shifts=shifts)
        self._cache = self._caches.server
        self._prompts_of = PolicyPrompts(
            policy, replay.model, replay.model_kind, self._cache.wants_system_prefix
        )
        self.encoder = self._prompts_of.encoder

    def turn(
        self, request: Request, continuation: Continuation, rendered: list[tuple[Prepared, str, Ids]]
    ) -> TurnReport:
        """Replay one request.

        Args:
            request: what the client sent.
            continuation: what it continues.
            rendered: what this turn's other policies rendered; equal conversations share text and ids.
        """
        prepared = self.policy.prepare(request, self._replay.model.template)
        try:
            prompt = self._prompts_of.prompt(continuation.turn, request, prepared, rendered)
            return self._replayed(prompt, continuation)
        except RenderError as error:
            self._stand_ins[continuation.turn] = self._base(continuation)
            why = self._raises.explain(request, prepared, error) if self._replay.causes else None
            return TurnReport(
                continuation.turn,
                len(request.messages),
                conversation=continuation.conversation,
                predecessor=continuation.predecessor,
                relation=continuation.relation,
                changed=continuation.changed,
                actions=prepared.actions,
                error=str(error),
                failure=why,
            )

    def _base(self, continuation: Continuation) -> int | None:
        """Return the predecessor, or the last one before it that stored a sequence where that raised."""
        turn = continuation.predecessor
        return turn if turn is None else self._stand_ins.get(turn, turn)

    def report(self, cost: CostModel | None, hours: float | None) -> PolicyReport:
        """Return the report of the turns so far; see `totals` for the arguments."""
        arrived, agreed = self._compared()
        turns = tuple(sorted(arrived, key=lambda turn: turn.turn))
        counts = self._cache.statistics
        names = self._replay.conversations.names()
        return PolicyReport(
            policy=self.policy.name,
            conversations=conversation_reports(turns, names, cost, hours),
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
            fails=failure_of(turns),
            server_cache=CacheInfo(
                kind=self._cache.kind,
                block_size=self._cache.block_size,
                capacity_bytes=self._replay.capacity_bytes,
                bytes_per_token=self._replay.sizes.bytes_per_token if self._replay.sizes else None,
                store=self._replay.store,
                layers=self._replay.model_kind,
            ),
            agreement=agreed,
        )

    def counted_again(self, new_cache: NewCache) -> Iterator[TurnReport]:
        """Yield by turn what each prefills with caches that `new_cache` makes; no cause is looked for."""
        caches = SessionCaches(new_cache, self._stored.sequence)
        found = [
            turn if turn.error is not None else self._counted(turn, self._kept[turn.turn], caches)
            for turn in self.turns
        ]
        yield from sorted(found, key=lambda turn: turn.turn)

    def _counted(self, report: TurnReport, kept: _KeptPrompt, caches: SessionCaches) -> TurnReport:
        sequence = self._stored.sequence(report.turn)
        ids = sequence[: kept.prompt_tokens]
        found = caches.look_up(kept.turn, ids)
        with caches.server.pin(found.match):
            caches.server.store(sequence, match=found.match, marks=kept.turn.step.marks)
        caches.store(kept.turn, ids, sequence)
        return replace(
            report,
            divergence=None,
            since_previous=None,
            reused=found.match.reused,
            reprefill=found.reprefill,
            unavoidable=found.unavoidable,
            avoidable=found.reprefill - found.unavoidable,
            losses=found.losses,
            cost=None,
            explained=None,
        )

    def _compared(self) -> tuple[Sequence[TurnReport], Agreement | None]:
        """Return the turns with what the server said of its reuse, and how far that agrees."""
        replay = self._replay
        if not replay.compare:
            return self.turns, None
        turns, lines = with_actual(self.turns, replay.requests, replay.log)
        trials = Trials(
            self._what_was_stored,
            lambda limited: replay.new_cache(self.policy, limited=limited),
            replay.store,
        )
        return turns, agreement(self.policy.name, turns, replay.requests.values(), lines, trials)

    def _what_was_stored(self, last: int | None, store: Store) -> list[ArrivedTurn]:
        """Return what the turns up to one stored, or would have with the replies, in order of arrival."""
        found = []
        conversations = {turn.turn: turn.conversation for turn in self.turns}
        for turn, kept in self._kept.items():
            read = (
                partial(self._read_stored, turn)
                if store == self._replay.store
                else partial(self._read, turn, store)
            )
            found.append(ArrivedTurn(turn, conversations[turn], kept.turn.base, read))
            if turn == last:
                break
        return found

    def _read_stored(self, turn: int) -> tuple[Ids, Ids, PromptBoundaries]:
        sequence, step = self._stored.sequence(turn), self._kept[turn].turn.step
        return sequence[: step.prompt_tokens], sequence, step.marks

    def _read(self, turn: int, store: Store) -> tuple[Ids, Ids, PromptBoundaries]:
        prompt = self._prompt_of(turn)
        _, output = self._prompts_of.reply(prompt, store)
        return prompt.ids, np.concatenate([prompt.ids, output]), self._prompts_of.boundaries(prompt, output)

    def _replayed(self, prompt: Prompt, continuation: Continuation) -> TurnReport:
        ids = prompt.ids
        if not len(ids):
            raise RenderError("EmptyPrompt", "the template renders nothing")
        base = self._base(continuation)
        compared = Comparison(self._prompt_of(base), prompt) if base is not None else None
        closest = self._stored.closest(ids)
        if continuation.predecessor is None:
            self.heads.append(self._head(prompt))
        reply, output = self._prompts_of.reply(prompt, self._replay.store)
        marks = self._prompts_of.boundaries(prompt, output)
        shared = self._stored.shared_with(ids, self._caches.conversation(base)) if base is not None else 0
        kept = self._kept_tokens(compared, base)
        turn = StoredTurn(Step(prompt.turn, len(ids), marks), continuation, base, kept, shared)
        found = self._caches.look_up(turn, ids)
        match = found.match
        price = self._caches.price(turn, found)
        why = self._explained(compared, base, price)
        parted = self._parted(compared, base, why)
        same = compared is not None and base == continuation.predecessor
        since = since_previous(compared, why) if compared is not None and same else None
        with self._cache.pin(match):
            cost = self._prefill(prompt, output, match, marks)
        sequence = np.concatenate([ids, output]) if len(output) else ids
        self._caches.store(turn, ids, sequence)
        self._stored.add(prompt.turn, sequence)
        self._kept[prompt.turn] = _KeptPrompt(turn, reply, len(output))
        self._prompts.pop(base or 0, None)
        self._prompts[prompt.turn] = prompt
        return TurnReport(
            turn=prompt.turn,
            messages=len(prompt.client.messages),
            conversation=continuation.conversation,
            predecessor=continuation.predecessor,
            relation=continuation.relation,
            changed=continuation.changed,
            prompt_tokens=len(ids),
            depth=closest.shared,
            closest=None if closest.turn is None else ClosestSequence(closest.turn, closest.shared),
            divergence=parted,
            since_previous=since,
            reused=match.reused,
            reprefill=found.reprefill,
            unavoidable=found.unavoidable,
            avoidable=found.reprefill - found.unavoidable,
            losses=found.losses,
            cost=cost,
            actions=prompt.actions,
            reply=StoredReply(len(output), reply.source) if reply else None,
            explained=explained_tokens(price, why, found.losses) if self._replay.causes else None,
        )

    def _head(self, prompt: Prompt) -> Head:
        """Return how a conversation begins, beside those before it."""
        tokens = len(self.encoder.fork().encode(prompt.text[: head_chars(prompt)]))
        shared = {head.turn: self._stored.shared_with(prompt.ids, (head.turn,)) for head in self.heads}
        return Head(prompt.turn, tokens, shared)

    def _kept_tokens(self, compared: Comparison | None, base: int | None) -> int:
        """Return how many of a prompt's tokens stand before what its predecessor did not have."""
        if compared is None or base is None:
            return 0
        earlier, later = compared.earlier, compared.later
        new = self._replay.conversations.new_messages(earlier.client, later.client)
        if self._kept[base].output and _is_replied_to(compared):
            # What is stored of the predecessor ends in its reply, which is then no new message.
            new -= {later.client.messages[_reply_place(compared)].index}
        return kept_tokens(earlier, later, new, compared.body_is_prefix, self.encoder.fork().encode)

    def _parted(
        self, compared: Comparison | None, base: int | None, why: Explanation | None
    ) -> Divergence | None:
        """Report where a prompt diverges from its predecessor's stored sequence.

        Args:
            compared: the predecessor's prompt and this one.
            base: the predecessor.
            why: why these diverge.
        """
        if compared is None or base is None:
            return None
        ids, size = compared.later.ids, self._cache.block_size
        shared = self._stored.shared_with(ids, (base,))
        kept = self._kept[base]
        if shared == kept.prompt_tokens + kept.output:
            return None
        if kept.reply and kept.output and compared.is_prefix and shared >= len(compared.earlier.ids):
            if shared == len(ids) or not _is_replied_to(compared):
                return None  # the same prompt again, or a reply that its client had no use for
            return reply_divergence(compared, kept.reply, kept.output, shared, size, why)
        return divergence(compared, size, why)

    def _explained(
        self, compared: Comparison | None, base: int | None, price: PrefillPrice
    ) -> Explanation | None:
        if compared is None or base is None or not self._replay.causes:
            return None
        kept = self._kept[base]
        stored = None
        if kept.reply and kept.output and _is_replied_to(compared):
            stored = StoredReplyIds(kept.reply, kept.output)
        return explanation(compared, self.policy, self.encoder, price, stored)

    def _prompt_of(self, turn: int) -> Prompt:
        """Return the prompt of an earlier turn; it is rendered again where a later one went on from it."""
        if turn in self._prompts:
            return self._prompts[turn]
        client, template = self._replay.requests[turn], self._replay.model.template
        text, prepared = render_prepared(self.policy.prepare(client, template), template)
        ids = self._stored.sequence(turn)[: self._kept[turn].prompt_tokens]
        return Prompt(turn, client, prepared.request, text, ids, template, prepared.profile, prepared.actions)

    def _prefill(self, prompt: Prompt, output: Ids, match: Match, marks: PromptBoundaries) -> Cost | None:
        """Compute what the cache does not have, and store the prompt and what follows it."""
        prefilling, ids = self._replay.prefilling, prompt.ids
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
class _KeptPrompt:
    """What is kept of a turn that stored a sequence.

    Attributes:
        turn: what the caches have to know of it.
        reply: its reply, where that is stored.
        output: how many of the reply's ids are stored.
    """

    turn: StoredTurn
    reply: Reply | None
    output: int

    @property
    def prompt_tokens(self) -> int:
        """Length of its prompt."""
        return self.turn.step.prompt_tokens


def _reply_place(compared: Comparison) -> int:
    """Return the position behind what a request has of its predecessor's messages.

    Items of reasoning that the client no longer sends move it forward.
    """
    before, after = compared.earlier.client.messages, compared.later.client.messages
    if not any(map(is_reasoning_item, before)):
        return len(before)
    gone = (change for change in changes(before, after) if drops_reasoning(before, change))
    return len(before) - sum(len(change.old) for change in gone)


def _is_replied_to(compared: Comparison) -> bool:
    """Return whether a request has an assistant's message behind what its predecessor had."""
    messages, start = compared.later.client.messages, _reply_place(compared)
    if start >= len(messages):
        return False
    data = messages[start].data
    if "role" in data:
        return bool(data["role"] == "assistant")
    return not str(data.get("type", "")).endswith("_output")
