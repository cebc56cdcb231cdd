"""Remedies tried on a whole session: applied to every request, and the session replayed again (counted)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..policies.registry import parse_policy
from .changed_session import ChangedSession
from .replay_report import (
    PolicyReport,
    Remedy,
    ReplayReport,
    Totals,
    TriedRemedy,
    TriedStep,
    TriedTurn,
    TurnReport,
)
from .totals import totals

if TYPE_CHECKING:
    from .replay import Replay

#: Remedies that are tried without being asked for.
_MOST = 3
#: Prompt tokens up to which that is done; of a longer session only the one that promises most is tried, and
#: none where nothing is avoidable, since it takes as long as the replay did.
_MOST_TOKENS = 3_000_000
#: Share of the avoidable tokens from which on another remedy is added to the best one.
_LEFT = 0.05
_ALL_OF_THEM = {
    "client:history-rewritten": "send earlier messages again as they were",
    "client:volatile-text": "keep what changes out of earlier messages, or send it behind the rest",
}


@dataclass(frozen=True, slots=True)
class _Tried:
    """What one replay with a set of remedies came to."""

    remedies: tuple[Remedy, ...]
    turns: tuple[TurnReport, ...]
    totals: Totals
    raised: int

    @property
    def rank(self) -> tuple[int, int, int]:
        return self.raised, self.totals.avoidable, self.totals.reprefill


def with_tried_remedies(replay: Replay, report: ReplayReport, most: int | None = None) -> ReplayReport:
    """Return a report with the remedies that promise most tried on the whole session.

    Args:
        replay: what the report is of; it has run to the end.
        report: its report.
        most: how many remedies to try under each policy; None for three, fewer where the session is long.
    """
    if not report.complete or not replay.causes:
        return report
    session = ChangedSession(replay.transcript)
    return replace(
        report,
        policies=tuple(
            replace(policy, tried=tuple(_tried(replay, session, policy, most))) for policy in report.policies
        ),
    )


def _tried(
    replay: Replay, session: ChangedSession, before: PolicyReport, most: int | None
) -> Iterator[TriedRemedy]:
    """Yield what was tried under a policy, the best first: single remedies, and sets of them."""
    candidates = _candidates(before)
    if most is None:
        most = min(_MOST, _MOST_TOKENS // max(1, before.totals.prompt_tokens))
        most = max(most, 1 if before.totals.avoidable else 0)
    if not candidates or not most:
        return
    singles = [_replayed(replay, session, before, (remedy,)) for remedy in candidates[:most]]
    found: dict[int, tuple[_Step, ...]] = {id(one): (_Step(one, before.totals.reprefill),) for one in singles}
    best = min(singles, key=lambda one: one.rank)
    everything = list(singles)
    for remedy in sorted(candidates[:most], key=lambda each: -each.saves):
        left = best.totals.avoidable
        if left <= _LEFT * before.totals.avoidable or left < before.server_cache.block_size:
            break
        if remedy in best.remedies:
            continue
        more = _replayed(replay, session, before, (*best.remedies, remedy))
        if more.rank < best.rank:
            found[id(more)] = (*found[id(best)], _Step(more, best.totals.reprefill))
            everything.append(more)
            best = more
    for one in sorted(everything, key=lambda each: each.rank):
        yield _as_report(one, found[id(one)], before)


@dataclass(frozen=True, slots=True)
class _Step:
    """The last remedy of a set, and what was prefilled before it was added."""

    tried: _Tried
    before: int

    @property
    def report(self) -> TriedStep:
        saves = max(0, self.before - self.tried.totals.reprefill)
        return TriedStep(self.tried.remedies[-1].set, saves)


def _as_report(tried: _Tried, steps: Sequence[_Step], before: PolicyReport) -> TriedRemedy:
    remedies = tried.remedies
    one = remedies[0]
    remedy = Remedy(
        kind=one.kind if len({each.kind for each in remedies}) == 1 else "set",
        set=", then ".join(each.set for each in remedies),
        tokens=sum(each.tokens for each in remedies),
        paste="; ".join(each.paste for each in remedies if each.paste) or None,
        saves=max(0, before.totals.reprefill - tried.totals.reprefill),
        apply=tuple(step for each in remedies for step in each.apply),
    )
    turns = tuple(
        TriedTurn(turn.turn, turn.reused, turn.reprefill, turn.unavoidable, turn.avoidable)
        for turn in tried.turns
    )
    shown = tuple(step.report for step in steps) if len(steps) > 1 else ()
    return TriedRemedy(remedy, turns, tried.totals, shown, tried.raised)


def _candidates(policy: PolicyReport) -> list[Remedy]:
    """Return the remedies that the turns promise, each once with its sums, the best first."""
    found: dict[tuple[str, ...], Remedy] = {}
    for turn in policy.turns:
        for remedy in _of_turn(policy, turn.turn):
            known = found.get(remedy.apply)
            if known is None:
                found[remedy.apply] = remedy
                continue
            same = known.set == remedy.set
            found[remedy.apply] = replace(
                known,
                set=known.set if same else _ALL_OF_THEM.get(remedy.apply[0], known.set),
                tokens=known.tokens + remedy.tokens,
                saves=known.saves + remedy.saves,
            )
    return sorted((each for each in found.values() if each.saves), key=lambda each: -each.saves)


def _of_turn(policy: PolicyReport, number: int) -> Iterator[Remedy]:
    turn = next(turn for turn in policy.turns if turn.turn == number)
    once: dict[tuple[str, ...], Remedy] = {}
    chain = turn.divergence.chain if turn.divergence else ()
    first = turn.divergence.remedies if turn.divergence else ()
    for remedy in (*first, *(link.remedy for link in chain[1:]), *(loss.remedy for loss in turn.losses)):
        if remedy is not None and remedy.apply:
            known = once.get(remedy.apply)
            more = known.saves if known else 0
            once[remedy.apply] = replace(remedy, saves=more + remedy.saves)
    yield from once.values()


def _replayed(
    replay: Replay, session: ChangedSession, before: PolicyReport, remedies: tuple[Remedy, ...]
) -> _Tried:
    """Replay the session with remedies applied to every request. Tokens are only counted."""
    steps = [step for remedy in remedies for step in remedy.apply]
    policy = next((step.partition(":")[2] for step in steps if step.startswith("policy:")), before.policy)
    blocks = next((int(step.partition("=")[2]) for step in steps if step.startswith("cache:block=")), None)
    unlimited = "cache:larger" in steps
    if all(step.startswith("cache:") for step in steps):
        turns = replay.with_other_cache(policy, block_size=blocks, unlimited=unlimited)
    else:
        again = replay.again(
            session.with_(steps), [parse_policy(policy)], block_size=blocks, unlimited=unlimited
        )
        for _ in again.turns():
            pass
        turns = again.report().policies[0].turns
    failed = {turn.turn for turn in before.turns if turn.error is not None}
    raised = sum(turn.error is not None and turn.turn not in failed for turn in turns)
    return _Tried(remedies, turns, totals(turns), raised)
