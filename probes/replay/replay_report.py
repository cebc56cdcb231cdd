"""The replay's report: one value that every output prints from, and whose JSON form is `tplaudit.replay/2`.

The field names are the JSON names; docs/json.md explains them. What is not known is None. Everything under a
key named `seconds` or `measured` depends on the machine; all else is the same at every run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..attribution.ownership import Owner, Region
from ..caches.base import Room
from ..conversation import TOP_LEVEL, ActualReuse
from ..cost.cost_report import Cost, Prediction, Speed, Wasted
from ..documents import plain
from ..files import read_json
from ..findings import Finding
from ..policies.base import Action
from ..transcripts.grouping.conversations import Relation

if TYPE_CHECKING:
    from ..engine.mlx_engine import MLXEngine
    from ..models.model import ReplayModel

SCHEMA = "tplaudit.replay/2"

#: What gives the number that a server said, where it is not the counted one.
DisagreementKind: TypeAlias = Literal[
    "raised",
    "prompt-length",
    "store",
    "restart",
    "larger-cache",
    "evicted",
    "other-slot",
    "warm",
    "other-policy",
    "unexplained",
]


@dataclass(frozen=True, slots=True)
class MessageRef:
    """A message of the client's request.

    Attributes:
        index: counted from 0; None for the request's top-level system text.
        role: as the client sent it.
        field: `content`, `reasoning`, `tool_calls`, …, or `header` for what the template writes around them.
    """

    index: int | None
    role: str
    field: str | None


@dataclass(frozen=True, slots=True)
class Place:
    """An owner on the earlier side of a comparison."""

    region: Region
    message: MessageRef | None
    line: int | None


@dataclass(frozen=True, slots=True)
class Remedy:
    """What would prevent a divergence.

    Attributes:
        kind: what it is a setting of: `kwarg`, `policy`, `client`, `template` or `cache`.
        set: what to set or do, short.
        tokens: how many more tokens the prompt would share then (counted).
        paste: a line to paste for the server or client in question, where it is known.
        saves: how many tokens less would be prefilled then, by the cache's own rule (counted); never more
            than the turn's re-prefill.
        apply: what would be done to a whole session to try it; empty where that cannot be done here.
    """

    kind: str
    set: str
    tokens: int
    paste: str | None = None
    saves: int = 0
    apply: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChainLink:
    """One of several causes, in the order in which they take effect.

    Attributes:
        cause: an id of docs/causes.md.
        confirmed: whether a counterfactual render proved it.
        tokens: token ids that are shared while the causes before it are undone (counted).
        region: what the first differing character then belongs to.
        message: the message that it belongs to.
        line: line of the template that wrote it.
        evidence: what shows it, one sentence without a full stop.
        values: what stood there and what stands there now, for a short stretch that changes.
        remedy: what would prevent it, where known.
        saves: how many tokens less are prefilled once it is undone, in the counterfactual that proves it.
    """

    cause: str
    confirmed: bool
    tokens: int
    region: Region
    message: MessageRef | None
    line: int | None
    evidence: str
    values: tuple[str, str] | None = None
    remedy: Remedy | None = None
    saves: int = 0


@dataclass(frozen=True, slots=True)
class UnreusedTokens:
    """Tokens that the prompt shares with its conversation's sequences and the cache does not give back.

    Attributes:
        cause: `cache-granularity` or `evicted`, of docs/causes.md.
        tokens: how many (counted); of what was evicted, those that are avoidable.
        evidence: what shows it, one sentence without a full stop.
        remedy: what would win some of them back, where known.
        room: what was evicted.
        turn: the request in whose turn that was.
        conversation: the conversation of that request.
    """

    cause: Literal["cache-granularity", "evicted"]
    tokens: int
    evidence: str
    remedy: Remedy | None = None
    room: Room | None = None
    turn: int | None = None
    conversation: int | None = None


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a prompt diverges from its predecessor's stored sequence.

    Attributes:
        stored_turn: the predecessor; the last one before it that stored a sequence where it raised.
        tokens: token ids that both share (counted).
        chars: characters that both share (counted).
        region: what the first differing character belongs to in this prompt.
        message: the message that it belongs to, for region `message`.
        rendered_index: index of that message in the list that the template saw.
        cause: an id of docs/causes.md, or None where no cause was looked for.
        confirmed: whether a counterfactual render proved the cause.
        line: line of the template that wrote the character.
        stored: the stored text from the point on, shortened.
        prompt: this prompt's text from the point on, shortened.
        remedy: what would prevent it, the most useful; None where nothing is known.
        block: the cache block in which the prompts diverge, counted from 0.
        before: what both have before the point, shortened.
        was: what the first differing character of the stored prompt belongs to.
        evidence: what shows the cause, one sentence without a full stop.
        remedies: everything that would prevent it, `remedy` first.
        chain: this cause, and those that would follow if the ones before were undone; at most five.
        stored_ids: the stored ids from the point on, where the characters are the same; else empty.
        prompt_ids: this prompt's ids from there on, likewise.
    """

    stored_turn: int
    tokens: int
    chars: int
    region: Region
    message: MessageRef | None
    rendered_index: int | None
    cause: str | None
    confirmed: bool
    line: int | None
    stored: str
    prompt: str
    remedy: Remedy | None = None
    block: int = 0
    before: str = ""
    was: Place | None = None
    evidence: str | None = None
    remedies: tuple[Remedy, ...] = ()
    chain: tuple[ChainLink, ...] = ()
    stored_ids: tuple[int, ...] = ()
    prompt_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SincePrevious:
    """How a prompt compares with its predecessor's.

    Attributes:
        tokens: token ids that both share, generation prompts included (counted).
        chars: characters that both share (counted).
        body_preserved: whether the earlier prompt without its generation prompt is a prefix of this one.
        generation_prompt_shared: whether the whole earlier prompt is.
        region: what the first differing character belongs to here; None where the body is preserved.
        message: the message that it belongs to.
        rendered_index: index of that message in the list that the template saw.
        was: what the first differing character of the earlier prompt belongs to.
        cause: an id of docs/causes.md, or None.
        confirmed: whether a counterfactual render proved the cause.
    """

    tokens: int
    chars: int
    body_preserved: bool
    generation_prompt_shared: bool
    region: Region | None = None
    message: MessageRef | None = None
    rendered_index: int | None = None
    was: Place | None = None
    cause: str | None = None
    confirmed: bool | None = None


@dataclass(frozen=True, slots=True)
class RaisedAt:
    """Why a template raised on a turn.

    Attributes:
        line: line of the template that raised, where known.
        message: the message, and its field, without which it does not raise; None where none was found.
        evidence: what shows it, and what the policy had made of the message; no full stop.
        remedies: what helps, each tried; they save nothing that could be counted.
    """

    line: int | None
    message: MessageRef | None
    evidence: str
    remedies: tuple[Remedy, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredReply:
    """What is stored of a turn's reply.

    Attributes:
        tokens: how many of its tokens are stored (counted); 0 where the server leaves it out.
        source: `generated` for ids that the transcript has, `text` for the ids of the reply's text, which
            can differ from those that the model generated.
    """

    tokens: int
    source: Literal["generated", "text"]


@dataclass(frozen=True, slots=True)
class ClosestSequence:
    """The stored sequence that shares most with a prompt, of whatever conversation; the latest among equals.

    Attributes:
        turn: the turn that stored it.
        tokens: token ids that both share (counted).
    """

    turn: int
    tokens: int


@dataclass(frozen=True, slots=True)
class TurnReport:
    """One turn under one policy. All token counts are counted; None where the turn raised.

    Attributes:
        turn: number of the request, counted from 1.
        messages: length of the client's message list.
        conversation: number of its conversation, counted from 1.
        predecessor: the turn that it continues; None where it begins a conversation.
        relation: how it does.
        changed: what else the client changed since then: `tools`, `system`.
        prompt_tokens: length of the prompt.
        depth: tokens that it shares with the closest stored sequence, of whatever conversation.
        closest: that sequence.
        divergence: where it diverges from the predecessor's stored sequence; None where that is a prefix of
            it, and where it begins a conversation.
        since_previous: how it compares with the predecessor's prompt; None where it begins a conversation
            and next to a turn that raised.
        reused: tokens taken over from the cache.
        reprefill: tokens that had to be computed.
        unavoidable: tokens that would have had to be computed if nothing of the predecessor's sequence had
            been altered; all of them where it begins a conversation.
        avoidable: the rest, the waste.
        actual: what the server said that it reused; None where it did not say it.
        losses: tokens shared within its conversation that the cache does not give back, by reason.
        cost: what the prefill took, where a model ran, or would take at a given rate.
        actions: what the policy did to the messages.
        error: what the template raised.
        reply: what is stored of the reply; None where none was to be, or the transcript has none.
        explained: avoidable tokens that confirmed causes, block rests and evictions account for; None where
            no cause was looked for.
        failure: where and why the template raised, and what would help.
    """

    turn: int
    messages: int
    conversation: int = 1
    predecessor: int | None = None
    relation: Relation = "begins"
    changed: tuple[str, ...] = ()
    prompt_tokens: int | None = None
    depth: int | None = None
    closest: ClosestSequence | None = None
    divergence: Divergence | None = None
    since_previous: SincePrevious | None = None
    reused: int | None = None
    reprefill: int | None = None
    unavoidable: int | None = None
    avoidable: int | None = None
    actual: ActualReuse | None = None
    losses: tuple[UnreusedTokens, ...] = ()
    cost: Cost | None = None
    actions: tuple[Action, ...] = ()
    error: str | None = None
    reply: StoredReply | None = None
    explained: int | None = None
    failure: RaisedAt | None = None

    @property
    def unexplained(self) -> int:
        """Avoidable tokens that nothing proven accounts for; 0 where no cause was looked for."""
        return 0 if self.explained is None else max(0, (self.avoidable or 0) - self.explained)


@dataclass(frozen=True, slots=True)
class ReplayFinding(Finding):
    """One finding about the turns of one policy.

    Attributes:
        policy: the policy.
        turns: the turns that show it.
        tokens: the avoidable tokens of those turns; where blocks are concerned, the shared tokens that are
            not reused (counted).
    """

    policy: str
    turns: tuple[int, ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class CauseTotal:
    """How often a cause came up, and the avoidable tokens of those turns."""

    turns: int
    avoidable: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the turns that rendered.

    Attributes:
        failed: turns that did not: the template raised, or the server answers with an error.
        seconds: measured and predicted ones together; None where there are none.
        wasted: the part of it that avoidable tokens cost; None likewise.
        explained: avoidable tokens that are explained; None where no cause was looked for.
        measured: speed and memory, where a model ran.
    """

    prompt_tokens: int
    reused: int
    reprefill: int
    unavoidable: int
    avoidable: int
    seconds: float | None
    causes: Mapping[str, CauseTotal] = field(default_factory=dict)
    wasted: Wasted | None = None
    measured: Speed | None = None
    failed: int = 0
    explained: int | None = None


@dataclass(frozen=True, slots=True)
class ConversationReport:
    """One conversation under one policy.

    Attributes:
        conversation: its number, counted from 1 by first requests.
        name: what people know it by, such as `main` or `sub-agent of 1`; None where nothing tells.
        guessed: whether the name is only likely.
        turns: its requests.
        totals: the sums over them.
    """

    conversation: int
    name: str | None
    guessed: bool
    turns: tuple[int, ...]
    totals: Totals

    @property
    def shown(self) -> str:
        """The conversation for people."""
        if self.name is None:
            return f"conversation {self.conversation}"
        return f"conversation {self.conversation}, {self.name}{' (a guess)' if self.guessed else ''}"


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """What the cache did, in blocks and bytes (counted)."""

    hits: int
    misses: int
    stored_blocks: int
    evicted_blocks: int
    blocks: int
    bytes: int


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """A cache that turns were replayed against.

    Attributes:
        kind: its name in docs/caches.md, without a block size.
        block_size: tokens per block; 1 where it has no blocks.
        capacity_bytes: the most that it may hold, where that was given.
        bytes_per_token: of K and V, over all layers of full attention.
        store: what is stored after a turn.
        layers: what the model's layers keep, such as `plain`, `hybrid` or `rotating:512`.
    """

    kind: str
    block_size: int
    capacity_bytes: int | None
    bytes_per_token: int | None
    store: Literal["prompt", "prompt+output"] = "prompt"
    layers: str = "plain"

    @property
    def described(self) -> str:
        """The cache in a few words."""
        blocks = f"blocks of {self.block_size} tokens" if self.block_size > 1 else "token by token"
        return f"{self.kind}, {blocks}"


@dataclass(frozen=True, slots=True)
class TriedTurn:
    """One turn of a session that was replayed with a remedy (counted); None where it raised."""

    turn: int
    reused: int | None
    reprefill: int | None
    unavoidable: int | None
    avoidable: int | None


@dataclass(frozen=True, slots=True)
class TriedStep:
    """One remedy of a set, and what it saved behind those before it (counted)."""

    set: str
    saves: int


@dataclass(frozen=True, slots=True)
class TriedRemedy:
    """A remedy that was applied to every request, and the whole session replayed (counted).

    Attributes:
        remedy: the remedy; of a set, all of them in one. `saves` is what less was prefilled in all.
        turns: the turns then.
        totals: their sums.
        steps: the remedies of a set in the order in which they were added, each with its share.
        raised: turns whose template raised then and did not before.
    """

    remedy: Remedy
    turns: tuple[TriedTurn, ...]
    totals: Totals
    steps: tuple[TriedStep, ...] = ()
    raised: int = 0


@dataclass(frozen=True, slots=True)
class PolicyFailure:
    """That turns raise under a policy.

    Attributes:
        turns: how many do.
        of: how many turns there are.
        first_turn: the first that does.
        why: what that one raises.
    """

    turns: int
    of: int
    first_turn: int
    why: str


@dataclass(frozen=True, slots=True)
class Disagreement:
    """The first turn on which counted and actual reuse differ, and what was found by trying.

    Attributes:
        turn: the turn.
        counted: tokens that are reused by count; None where the template raised.
        actual: tokens that the server said.
        kind: what gives the server's number; `unexplained` where nothing that was tried does.
        evidence: what shows it, one sentence without a full stop.
        also: what else gives the same number.
    """

    turn: int
    counted: int | None
    actual: int
    kind: DisagreementKind
    evidence: str
    also: tuple[DisagreementKind, ...] = ()


@dataclass(frozen=True, slots=True)
class LogLines:
    """What of a server's log was laid beside the turns.

    Attributes:
        source: the file.
        used: the numbers of the lines that were used, counted from 1.
        entries: requests that were used.
        skipped: requests that the log tells of and that are no turn, or do not say what was reused.
        by_prefill: whether the lines do not say how long prompts are and more requests than turns are there,
            so that the counted prefills helped to find them: they agree too easily then.
    """

    source: str
    used: tuple[int, ...]
    entries: int
    skipped: int
    by_prefill: bool


@dataclass(frozen=True, slots=True)
class Agreement:
    """Counted and actual reuse of a policy's turns.

    Attributes:
        turns: turns of which the server said what it reused.
        agreeing: those on which it is the counted number, and the prompt as long as counted, where it said
            that.
        whole_repeats: those among them whose `usage` counts the one token too that is computed.
        first: the first turn that does not agree.
        log: what of a log was used; None without one.
        missing: what would make the server say it; None where it did, and where nothing is known.
    """

    turns: int
    agreeing: int
    whole_repeats: int = 0
    first: Disagreement | None = None
    log: LogLines | None = None
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class RankedCandidate:
    """A server, with options, and how well it explains what was actually reused.

    Attributes:
        policy: as `--policy` takes it.
        store: what is stored after a turn.
        block_size: tokens per block, where that is not the server's default.
        agreeing: turns on which counted and actual reuse agree, and the length of the prompt where it is
            known.
        of: turns of which it is known what was actually reused.
        lengths: turns whose prompt is as long as the server said.
        difference: the sum of the differences between counted and actual reuse, in tokens.
        fits: whether it agrees on enough turns (docs/replay.md).
        turns: the turns that agree.
    """

    policy: str
    store: Literal["prompt", "prompt+output"]
    block_size: int | None
    agreeing: int
    of: int
    lengths: int
    difference: int
    fits: bool
    turns: tuple[int, ...]

    @property
    def described(self) -> str:
        """The candidate as options of the command line."""
        blocks = f" --block-size {self.block_size}" if self.block_size else ""
        return f"--policy {self.policy} --store {self.store}{blocks}"


@dataclass(frozen=True, slots=True)
class Ranking:
    """Which server explains the actual numbers best.

    Attributes:
        tried: how many candidates were tried.
        fits: whether the best one does.
        tied: the best ones, which this session cannot tell apart.
        candidates: the best ten, of which the first is the one that is replayed.
    """

    tried: int
    fits: bool
    tied: tuple[str, ...]
    candidates: tuple[RankedCandidate, ...]


@dataclass(frozen=True, slots=True)
class PolicyReport:
    """All turns under one policy, against a cache of its own.

    Attributes:
        conversations: what the turns belong to.
        fails: that turns raise; None where none does.
        server_cache: the cache.
        cache: what it did.
        tried: remedies that were replayed on the whole session, the best first.
        agreement: what the server said of its reuse, beside what is counted; None where it said nothing and
            nothing is known that would make it.
    """

    policy: str
    conversations: tuple[ConversationReport, ...]
    turns: tuple[TurnReport, ...]
    totals: Totals
    cache: CacheCounts
    summary: str
    server_cache: CacheInfo
    fails: PolicyFailure | None = None
    tried: tuple[TriedRemedy, ...] = ()
    agreement: Agreement | None = None


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What stood in for the model.

    Attributes:
        source: what the person named.
        kind: how it was found.
        architecture: `model_type` of its configuration.
        tokenizer: what counted the tokens.
        approximate: whether the tokenizer is not the model's own.
        weights: what the weights are, where a model ran.
        blas: what multiplied its matrices, where a model ran.
    """

    source: str
    kind: Literal["bundled", "directory", "hub", "template"]
    architecture: str | None
    tokenizer: str
    approximate: bool
    weights: str | None = None
    blas: str | None = None


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Prefills from restored blocks compared with cold ones (measured).

    Attributes:
        checked_turns: prompts that were compared.
        max_abs_logit_difference: largest difference of the last position's logits.
        cold_noise: the same between cold prefills of different chunking.
        argmax_equal: whether every pair would continue with the same token.
        passed: whether the difference is at most ten times the noise and every argmax is equal.
    """

    checked_turns: int
    max_abs_logit_difference: float
    cold_noise: float
    argmax_equal: bool
    passed: bool


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """The whole replay.

    Attributes:
        transcript: what the person named.
        cache: the first policy's; each policy has its own.
        complete: whether it ran to the transcript's end.
        error: why it did not, where it did not.
        notes: what a reader has to know about the numbers.
        findings: patterns over the turns of each policy.
        prefill_rate: tokens per second that predicted seconds go by, where one was given.
        prediction: what predicted seconds come from; None where there are none.
        hours: length of the session by the transcript's timestamps, from the first request that ran to the
            last; None where it has none.
        ranking: which server fits best, with `--policy auto`.
    """

    schema: str
    tplaudit: str
    transcript: str
    template: str
    model: ModelInfo
    cache: CacheInfo
    engine: Literal["tokens", "mlx"]
    policies: tuple[PolicyReport, ...]
    verify: VerifyReport | None
    notes: tuple[str, ...] = ()
    complete: bool = True
    error: str | None = None
    findings: tuple[ReplayFinding, ...] = ()
    prefill_rate: float | None = None
    prediction: Prediction | None = None
    hours: float | None = None
    ranking: Ranking | None = None


def model_info(model: ReplayModel, engine: MLXEngine | None) -> ModelInfo:
    """Describe what a replay runs on.

    Args:
        model: the model.
        engine: what computes with it; None where tokens are only counted.
    """
    config = model.directory / "config.json"
    architecture = read_json(config).get("model_type") if config.is_file() else None
    own = model.kind != "template" or engine is not None
    return ModelInfo(
        source=model.source,
        kind=model.kind,
        architecture=architecture if own and isinstance(architecture, str) else None,
        tokenizer=model.tokenizer.name,
        approximate=model.approximate,
        weights=engine.precision if engine else None,
        blas=engine.blas if engine else None,
    )


def message_ref(owner: Owner) -> MessageRef | None:
    """Return the message that an owner names, if it names one."""
    if owner.index is None or owner.role is None:
        return None
    return MessageRef(None if owner.index == TOP_LEVEL else owner.index, owner.role, owner.field)


def to_json(report: ReplayReport) -> dict[str, Any]:
    """Return the report as plain JSON types."""
    return plain(report)
