"""The findings of a whole replay: patterns over its turns, under the ids of findings.py."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from ..findings import RULES, Confidence, in_order
from .replay_report import ChainLink, PolicyReport, ReplayFinding, TurnReport

#: Fewest turns that make a pattern of a depth.
_FEWEST = 3
#: Share of the prompts' growth below which a depth counts as standing still.
_STILL = 0.1
#: Share of all prompt tokens from which the rests of blocks are reported.
_MUCH = 0.02

#: Changes that are often undone. Then an older prompt is closer, so the previous turn's cause counts as well.
_TO_AND_FRO = frozenset({"tools-changed"})


def replay_findings(policy: PolicyReport, without_reasoning: Sequence[int] = ()) -> tuple[ReplayFinding, ...]:
    """Return the findings about one policy's turns.

    Args:
        policy: the turns.
        without_reasoning: turns whose request lacks the reasoning that the reply before it had.
    """
    found = (
        *_depth_stays(policy),
        *_volatile(policy),
        *_of_cause(policy, "notes-change-place", "note-neighbour-flip", 2, "a note changes its place"),
        *_of_cause(
            policy, "history-stripped", "thinking-stripped", 1, "earlier reasoning is removed from the prompt"
        ),
        *_of_cause(
            policy,
            "tools-come-and-go",
            "tools-changed",
            2,
            "the tool list differs from that of the turn before",
        ),
        *_of_cause(
            policy,
            "client-rewrites-history",
            "history-rewritten",
            1,
            "the client changed what it had sent before",
        ),
        *_reasoning_dropped(policy, without_reasoning),
        *_block_rests(policy),
    )
    return tuple(each for each in in_order(found) if isinstance(each, ReplayFinding))


def _finding(
    policy: PolicyReport, rule: str, message: str, turns: Sequence[TurnReport], tokens: int, confirmed: bool
) -> ReplayFinding:
    row = RULES[rule]
    confidence: Confidence = "confirmed" if confirmed else "likely"
    numbers = tuple(turn.turn for turn in turns)
    return ReplayFinding(
        rule, row.severity, confidence, message, None, 0, row.help, policy.policy, numbers, tokens
    )


def still_depth(turns: Sequence[TurnReport]) -> list[TurnReport]:
    """Return the turns whose depth stays within the leading block while prompts grow; none where few do."""
    found = [turn for turn in turns if turn.avoidable and _in_leading_block(turn)]
    if len(found) < _FEWEST:
        return []
    depths, lengths = [turn.depth or 0 for turn in found], [turn.prompt_tokens or 0 for turn in found]
    grown = max(lengths) - min(lengths)
    return found if grown and max(depths) - min(depths) <= _STILL * grown else []


def _depth_stays(policy: PolicyReport) -> Iterator[ReplayFinding]:
    """A depth that stays within the leading block while prompts grow: the sign of a hoist."""
    turns = still_depth(policy.turns)
    if not turns:
        return
    depths, lengths = [turn.depth or 0 for turn in turns], [turn.prompt_tokens or 0 for turn in turns]
    message = (
        f"in {_times(turns)} the shared prefix is {_range(depths)} tokens long and ends within the first "
        f"message, while the prompts have {_range(lengths)} tokens"
    )
    confirmed = all(turn.divergence is not None and turn.divergence.confirmed for turn in turns)
    yield _finding(policy, "depth-within-leading-block", message, turns, _avoidable(turns), confirmed)


def _in_leading_block(turn: TurnReport) -> bool:
    """Return whether the prompts diverge within the first message, by a later message's text."""
    divergence = turn.divergence
    return (
        divergence is not None
        and divergence.rendered_index == 0
        and divergence.message is not None
        and (divergence.message.index or 0) > 0
    )


def _volatile(policy: PolicyReport) -> Iterator[ReplayFinding]:
    """Volatile text, with its two values and its period."""
    places: dict[int | None, list[tuple[TurnReport, ChainLink]]] = defaultdict(list)
    for turn in policy.turns:
        for link in _links(turn, "volatile-text"):
            places[link.message.index if link.message else None].append((turn, link))
    for index, seen in places.items():
        turns = [turn for turn, _ in seen]
        was, now = seen[0][1].values or ("", "")
        where = "the system prompt" if index is None else f"message {index}"
        message = f"{where} changes {_period(turns)}, for example from {was!r} to {now!r}"
        confirmed = all(link.confirmed for _, link in seen)
        yield _finding(policy, "volatile-text", message, turns, _avoidable(turns), confirmed)


def _of_cause(policy: PolicyReport, rule: str, cause: str, fewest: int, what: str) -> Iterator[ReplayFinding]:
    turns = [
        turn
        for turn in policy.turns
        if _links(turn, cause) or (cause in _TO_AND_FRO and _since(turn) == cause)
    ]
    if len(turns) >= fewest:
        confirmed = all(link.confirmed for turn in turns for link in _links(turn, cause))
        message = f"in {_times(turns)} {what}{_remedy(turns, cause)}"
        yield _finding(policy, rule, message, turns, _avoidable(turns), confirmed)


def _reasoning_dropped(policy: PolicyReport, without: Sequence[int]) -> Iterator[ReplayFinding]:
    turns = [
        turn for turn in policy.turns if turn.turn in without or any(_links(turn, "client-reasoning-dropped"))
    ]
    if turns:
        message = f"in {_times(turns)} the client does not send back reasoning that it had or received"
        yield _finding(policy, "client-drops-reasoning", message, turns, _avoidable(turns), True)


def _block_rests(policy: PolicyReport) -> Iterator[ReplayFinding]:
    unreused = {
        turn.turn: miss.tokens
        for turn in policy.turns
        for miss in turn.losses
        if miss.cause == "cache-granularity"
    }
    total = sum(unreused.values())
    if len(unreused) >= _FEWEST and total > _MUCH * policy.totals.prompt_tokens:
        turns = [turn for turn in policy.turns if turn.turn in unreused]
        blocks = policy.server_cache.block_size > 1
        what = (
            f"the shared prefix ends inside a block of {policy.server_cache.block_size:,} tokens"
            if blocks
            else "the cache cannot give all shared tokens back"
        )
        message = (
            f"in {_times(turns)} {what}, which costs {total:,} tokens in all, "
            f"{total / policy.totals.prompt_tokens:.1%} of all prompt tokens"
        )
        yield _finding(policy, "block-rests", message, turns, total, True)


def _links(turn: TurnReport, cause: str) -> list[ChainLink]:
    return [link for link in turn.divergence.chain if link.cause == cause] if turn.divergence else []


def _since(turn: TurnReport) -> str | None:
    return turn.since_previous.cause if turn.since_previous else None


def _remedy(turns: Sequence[TurnReport], cause: str) -> str:
    """Name the remedy that the turns have in common, and how many tokens it saves in all."""
    saved: Counter[str] = Counter()
    for turn in turns:
        for link in _links(turn, cause):
            if link.remedy is not None:
                saved[link.remedy.set] += link.remedy.saves
    if not any(saved.values()):
        return ""
    set_, tokens = saved.most_common(1)[0]
    return f"; {set_} would save {tokens:,} tokens"


def _period(turns: Sequence[TurnReport]) -> str:
    steps = Counter(after.turn - before.turn for before, after in pairwise(turns))
    if not steps:
        return f"in turn {turns[0].turn}"
    step = steps.most_common(1)[0][0]
    return f"in {len(turns)} turns, mostly " + ("every turn" if step == 1 else f"every {step} turns")


def _times(turns: Sequence[TurnReport]) -> str:
    return f"turn {turns[0].turn}" if len(turns) == 1 else f"{len(turns)} turns"


def _range(values: Sequence[int]) -> str:
    return f"{min(values):,} to {max(values):,}"


def _avoidable(turns: Sequence[TurnReport]) -> int:
    return sum(turn.avoidable or 0 for turn in turns)
