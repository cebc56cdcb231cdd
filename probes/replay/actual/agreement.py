"""Counted reuse beside what the server said: where they agree, and why the first that does not differs.

An explanation is tried, never guessed: the policy's cache is filled again in another way, and asked for the
turn's prompt. Counted numbers stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...caches.base import PromptBoundaries
from ...conversation import ActualReuse, Request
from ...policies.registry import kind_of
from ..replay_report import (
    Agreement,
    Disagreement,
    DisagreementKind,
    LogLines,
    PolicyReport,
    TurnReport,
)
from .log_lines import LogEntry
from .server_log import AlignedTurn, ServerLog, aligned, guessed

if TYPE_CHECKING:
    from ...caches.base import PrefixCache
    from ...caches.stored_reply import Store
    from ...tokenization.tokens import Ids


@dataclass(frozen=True, slots=True)
class ArrivedTurn:
    """What a turn looked up and stored.

    Attributes:
        turn: its number.
        conversation: its conversation's.
        predecessor: the turn whose sequence it goes on from; None where there is none.
        read: returns its prompt, shape `(n,)`, the sequence that was stored, shape `(m,)`, and what the
            server knows of it; made when asked for, since a long session's are too large to be held.
    """

    turn: int
    conversation: int
    predecessor: int | None
    read: Callable[[], tuple[Ids, Ids, PromptBoundaries]]


@dataclass(frozen=True, slots=True)
class Trials:
    """What a policy's cache can be asked again with.

    Attributes:
        stored: what each turn up to a given one stored, in order of arrival, with the replies or without.
        new_cache: returns an empty cache of the server, with its limits or without.
        store: what the replay stores.
    """

    stored: Callable[[int | None, Store], Sequence[ArrivedTurn]]
    new_cache: Callable[[bool], PrefixCache]
    store: Store


def with_actual(
    turns: Sequence[TurnReport], requests: Mapping[int, Request], log: ServerLog | None
) -> tuple[tuple[TurnReport, ...], LogLines | None]:
    """Return the turns with what the server said of each, and what of its log was used.

    Args:
        turns: the turns of one policy, in order of arrival.
        requests: the requests by turn; what their answers say counts where the log does not say it.
        log: the server's log; None for none.
    """
    said = {turn.turn: requests[turn.turn].actual for turn in turns}
    if log is None:
        return tuple(replace(turn, actual=said[turn.turn]) for turn in turns), None
    lengths = [_aligned_turn(turn, said[turn.turn]) for turn in turns]
    entries = aligned(log.entries, lengths)
    used: list[LogEntry] = []
    found = []
    for turn, length in zip(turns, lengths, strict=True):
        entry = entries.get(turn.turn)
        actual = _of_entry(entry, length) if entry else None
        if entry and actual:
            used.append(entry)
        found.append(replace(turn, actual=actual or said[turn.turn]))
    lines = LogLines(
        source=log.source,
        used=tuple(sorted(line for entry in used for line in entry.lines)),
        entries=len(used),
        skipped=len(log.entries) - len(used),
        by_prefill=guessed(log.entries, lengths),
    )
    return tuple(found), lines


def _aligned_turn(turn: TurnReport, said: ActualReuse | None) -> AlignedTurn:
    length = said.prompt_tokens if said and said.prompt_tokens is not None else turn.prompt_tokens
    return AlignedTurn(turn.turn, length, turn.reprefill)


def _of_entry(entry: LogEntry, turn: AlignedTurn) -> ActualReuse | None:
    """Return what an entry says of a turn; None where it does not say what was reused."""
    if entry.reused is not None:
        return ActualReuse(entry.reused, entry.prompt_tokens, "log")
    if entry.prefilled is None or turn.prompt_tokens is None or entry.prefilled > turn.prompt_tokens:
        return None
    return ActualReuse(turn.prompt_tokens - entry.prefilled, entry.prompt_tokens, "log")


def agrees(policy: str, prompt_tokens: int | None, reused: int | None, actual: ActualReuse) -> bool:
    """Tell whether a counted turn is what the server said of it.

    Args:
        policy: the policy, as `--policy` takes it.
        prompt_tokens: the counted length of the prompt; None where the template raised.
        reused: the counted reuse; None likewise.
        actual: what the server said.
    """
    if reused is None or (actual.prompt_tokens is not None and actual.prompt_tokens != prompt_tokens):
        return False
    return reused == actual.reused or is_whole_repeat(policy, prompt_tokens, reused, actual)


def is_whole_repeat(policy: str, prompt_tokens: int | None, reused: int | None, actual: ActualReuse) -> bool:
    """Tell whether a server's `usage` counts all of a prompt where all but one token was reused."""
    kind = kind_of(policy)
    reports = kind.reuse_reports if kind else None
    return (
        reports is not None
        and reports.repeat_is_whole
        and actual.source == "usage"
        and reused is not None
        and actual.reused == prompt_tokens == reused + 1
    )


def agreement(
    policy: str,
    turns: Sequence[TurnReport],
    requests: Iterable[Request],
    lines: LogLines | None,
    trials: Trials,
) -> Agreement | None:
    """Compare what the server said with what is counted.

    Args:
        policy: the policy, as `--policy` takes it.
        turns: its turns with what the server said, in order of arrival.
        requests: the session's requests.
        lines: what of a log was used.
        trials: what its cache can be asked again with.
    """
    told = [turn for turn in turns if turn.actual is not None]
    if not told:
        missing = needed(policy, requests)
        return Agreement(0, 0, log=lines, missing=missing) if lines or missing else None
    differing = [turn for turn in told if not _agrees(policy, turn)]
    return Agreement(
        turns=len(told),
        agreeing=len(told) - len(differing),
        whole_repeats=sum(
            turn.actual is not None and is_whole_repeat(policy, turn.prompt_tokens, turn.reused, turn.actual)
            for turn in told
        ),
        first=_explained(policy, differing[0], told, trials) if differing else None,
        log=lines,
    )


def _agrees(policy: str, turn: TurnReport) -> bool:
    return turn.actual is not None and agrees(policy, turn.prompt_tokens, turn.reused, turn.actual)


def needed(policy: str, requests: Iterable[Request]) -> str | None:
    """Say what would make a server tell its reuse, where a transcript has answers that do not.

    Args:
        policy: the policy, as `--policy` takes it.
        requests: the session's requests.

    Returns:
        What to do, as a clause; None where there are no answers, or nothing is known of the server.
    """
    answered = [request for request in requests if request.answered]
    kind = kind_of(policy)
    reports = kind.reuse_reports if kind else None
    if reports is None or not answered:
        return None
    if not reports.answers:
        return "this server's answers never say it; give its log with --server-log"
    ways = [f"start the server with {reports.flag}"] if reports.flag else []
    if any(_unasked(request) for request in answered):
        ways.append("let the client ask for it in streams (stream_options.include_usage)")
    if reports.log:
        ways.append("give the server's log with --server-log")
    return ", or ".join(ways) or None


def _unasked(request: Request) -> bool:
    """Whether a request wants a stream, and no usage at its end."""
    options = request.fields.get("stream_options")
    asked = isinstance(options, Mapping) and options.get("include_usage") is True
    return request.fields.get("stream") is True and not asked and request.dialect == "openai-chat"


def _explained(policy: str, turn: TurnReport, told: Sequence[TurnReport], trials: Trials) -> Disagreement:
    """Try what may give the number that the server said of a turn, the first one that differs."""
    actual = turn.actual
    assert actual is not None

    def found(kind: DisagreementKind, evidence: str) -> Disagreement:
        return Disagreement(turn.turn, turn.reused, actual.reused, kind, evidence)

    if turn.reused is None:
        return found("raised", "under this policy the template raises, and the server answered")
    if actual.prompt_tokens not in (None, turn.prompt_tokens):
        return found(
            "prompt-length",
            f"the prompt has {actual.prompt_tokens:,} tokens at the server and {turn.prompt_tokens:,} here: "
            "template, tokenizer, clock or policy differ",
        )
    gives = dict(reversed(list(_tried(policy, turn, actual, told, trials))))  # of two of a kind the first
    if gives:
        (kind, evidence), *others = reversed(gives.items())
        return replace(found(kind, evidence), also=tuple(other for other, _ in others))
    return found(
        "unexplained",
        "nothing that was tried gives the server's number: replies stored or not, an emptied cache, one "
        "without a limit, one without the predecessor's sequence or its conversation, one that has seen the "
        "session before",
    )


def _tried(
    policy: str, turn: TurnReport, actual: ActualReuse, told: Sequence[TurnReport], trials: Trials
) -> Iterator[tuple[DisagreementKind, str]]:
    """Yield what gives the server's number, the likeliest first."""
    stored = trials.stored(None, trials.store)
    before = trials.stored(turn.turn, trials.store)
    this, earlier = before[-1], before[:-1]
    rest = stored[len(earlier) :]
    ids, _, boundaries = this.read()
    fits = _Fits(policy, actual, len(ids))
    wanted = {each.turn: each for each in told}

    other: Store = "prompt" if trials.store == "prompt+output" else "prompt+output"
    if fits(_filled(trials.new_cache(True), trials.stored(turn.turn, other)[:-1]).probe(ids, boundaries)):
        yield "store", f"with --store {other} the cache gives {actual.reused:,} here"
    empty = fits(trials.new_cache(True).probe(ids, boundaries))
    if empty:
        restarted = _agreeing(policy, trials.new_cache(True), rest, wanted)
        going_on = sum(_agrees(policy, each) for each in told if each.turn in {one.turn for one in rest})
        if restarted > going_on:
            yield (
                "restart",
                f"as after a restart: with a cache that is empty before it, {restarted} of the "
                f"{sum(one.turn in wanted for one in rest)} turns from here on agree, instead of {going_on}",
            )
    if fits(_filled(trials.new_cache(False), earlier).probe(ids, boundaries)):
        yield "larger-cache", f"a cache without a limit gives {actual.reused:,} here"
    without = [each for each in earlier if each.turn != this.predecessor]
    if len(without) < len(earlier) and fits(_filled(trials.new_cache(True), without).probe(ids, boundaries)):
        yield (
            "evicted",
            f"without what turn {this.predecessor} stored the cache gives {actual.reused:,} here: it was "
            "evicted, or in another slot",
        )
    others = [each for each in earlier if each.conversation != this.conversation]
    if len(others) < len(earlier) and fits(_filled(trials.new_cache(True), others).probe(ids, boundaries)):
        yield (
            "other-slot",
            f"without this conversation's sequences the cache gives {actual.reused:,} here: they were "
            "evicted, or in another slot",
        )
    if empty:
        yield "restart", "an empty cache gives it, as after a restart or where nothing could be looked up"
    if fits(_filled(trials.new_cache(True), [*stored, *earlier]).probe(ids, boundaries)):
        yield "warm", f"a cache that has seen the session before gives {actual.reused:,} here"


@dataclass(frozen=True, slots=True)
class _Fits:
    """Whether a number is what the server said of a prompt with so many tokens."""

    policy: str
    actual: ActualReuse
    length: int

    def __call__(self, reused: int) -> bool:
        return agrees(self.policy, self.length, reused, self.actual)


def _filled(cache: PrefixCache, turns: Sequence[ArrivedTurn]) -> PrefixCache:
    """Look up and store some turns one after another; return the cache."""
    for each in turns:
        ids, sequence, boundaries = each.read()
        cache.store(sequence, match=cache.match(ids, boundaries), marks=boundaries)
    return cache


def _agreeing(
    policy: str, cache: PrefixCache, turns: Sequence[ArrivedTurn], told: Mapping[int, TurnReport]
) -> int:
    """Return on how many turns a cache gives what the server said, from the first of some turns on."""
    count = 0
    for each in turns:
        ids, sequence, boundaries = each.read()
        match = cache.match(ids, boundaries)
        actual = told[each.turn].actual if each.turn in told else None
        count += actual is not None and agrees(policy, len(ids), match.reused, actual)
        cache.store(sequence, match=match, marks=boundaries)
    return count


def with_better_policies(policies: Sequence[PolicyReport]) -> tuple[PolicyReport, ...]:
    """Name the policy under which most turns agree, where the numbers of others are not explained."""
    best = max(policies, key=lambda each: each.agreement.agreeing if each.agreement else 0)
    return tuple(_with_better(each, best.policy, best.agreement) for each in policies)


def _with_better(policy: PolicyReport, name: str, best: Agreement | None) -> PolicyReport:
    mine = policy.agreement
    if mine is None or mine.first is None or best is None or best.agreeing <= mine.agreeing:
        return policy
    if mine.first.kind not in ("raised", "prompt-length", "unexplained"):
        return policy
    better = f"under {name} {best.agreeing} of {best.turns} turns agree"
    if mine.first.kind == "unexplained":
        first = replace(mine.first, kind="other-policy", evidence=better)
    else:
        first = replace(mine.first, evidence=f"{mine.first.evidence}; {better}")
    return replace(policy, agreement=replace(mine, first=first))
