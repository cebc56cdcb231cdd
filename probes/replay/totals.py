"""The sums over a policy's turns: tokens, causes, seconds, what was wasted, and how fast the model was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..cost.cost_model import CostModel
from ..cost.cost_report import PerHour, Speed, Wasted
from ..transcripts.grouping.conversation_names import ConversationName
from .replay_report import CauseTotal, ConversationReport, Totals, TurnReport


def totals(
    turns: tuple[TurnReport, ...], cost: CostModel | None = None, hours: float | None = None
) -> Totals:
    """Sum the turns that rendered.

    Args:
        turns: all turns of a policy.
        cost: what divides a turn's seconds between what was avoidable and the rest; None: by tokens.
        hours: length of the session, where it is known.
    """

    def total(name: str) -> int:
        return sum(getattr(turn, name) or 0 for turn in turns)

    costs = [turn.cost.seconds for turn in turns if turn.cost is not None]
    causes: dict[str, CauseTotal] = {}
    for turn in turns:
        for cause, avoidable in _shares(turn):
            was = causes.get(cause, CauseTotal(0, 0))
            causes[cause] = CauseTotal(was.turns + 1, was.avoidable + avoidable)
    return Totals(
        prompt_tokens=total("prompt_tokens"),
        reused=total("reused"),
        reprefill=total("reprefill"),
        unavoidable=total("unavoidable"),
        avoidable=total("avoidable"),
        seconds=sum(costs) if costs else None,
        causes=causes,
        wasted=_wasted(turns, cost, hours) if costs else None,
        measured=_speed(turns),
        explained=_explained(turns),
        failed=sum(turn.error is not None for turn in turns),
    )


def _explained(turns: tuple[TurnReport, ...]) -> int | None:
    known = [turn.explained for turn in turns if turn.explained is not None]
    return sum(known) if known else None


def conversation_reports(
    turns: tuple[TurnReport, ...],
    names: Iterable[ConversationName],
    cost: CostModel | None = None,
    hours: float | None = None,
) -> tuple[ConversationReport, ...]:
    """Sum the turns of each conversation.

    Args:
        turns: all turns of a policy.
        names: the conversations, in order.
        cost: as of `totals`.
        hours: as of `totals`.
    """
    found = []
    for name in names:
        own = tuple(turn for turn in turns if turn.conversation == name.conversation)
        if not own:
            continue  # it was read, and the replay ended before its turn
        found.append(
            ConversationReport(
                name.conversation,
                name.name,
                name.guessed,
                tuple(turn.turn for turn in own),
                totals(own, cost, hours),
            )
        )
    return tuple(found)


def _wasted(turns: tuple[TurnReport, ...], cost: CostModel | None, hours: float | None) -> Wasted:
    cost = cost or CostModel.at_rate(1)
    seconds = 0.0
    for turn in turns:
        if turn.cost is None or not turn.avoidable:
            continue
        assert turn.reprefill is not None and turn.reused is not None
        assert turn.unavoidable is not None and turn.prompt_tokens is not None
        whole = cost.seconds(turn.reprefill, turn.reused)
        needed = cost.seconds(turn.unavoidable, turn.prompt_tokens - turn.unavoidable)
        if whole > 0:
            seconds += turn.cost.seconds * max(0.0, 1 - needed / whole)
    return Wasted(seconds, PerHour(seconds / hours) if hours else None)


def _speed(turns: tuple[TurnReport, ...]) -> Speed | None:
    timed = [(turn, turn.cost) for turn in turns if turn.cost and turn.cost.measured]
    if not timed:
        return None
    seconds = sum(cost.seconds for _, cost in timed)
    tokens = sum(turn.reprefill or 0 for turn, _ in timed)
    peak = max(cost.measured.peak_bytes for _, cost in timed if cost.measured)
    return Speed(len(timed), tokens / seconds if seconds else None, peak)


def _shares(turn: TurnReport) -> Iterator[tuple[str, int]]:
    """Yield a turn's causes with their shares of its avoidable tokens.

    What was dropped from the cache is the eviction's; the rest is what made the prompts part.
    """
    left = turn.avoidable or 0
    for loss in turn.losses:
        if loss.cause == "evicted":
            yield loss.cause, min(left, loss.tokens)
            left -= min(left, loss.tokens)
    cause = turn.divergence.cause if turn.divergence else None
    if cause is None and left and turn.since_previous is not None:
        cause = turn.since_previous.cause  # an older prompt is closer, and whole
    if cause is not None:
        yield cause, left
