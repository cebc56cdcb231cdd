"""A few sentences that a person can act on, in the words that server logs use."""

from __future__ import annotations

from collections.abc import Sequence

from ..conversation import named_messages
from ..policies.base import Action
from .findings import still_depth
from .replay_report import Divergence, PolicyFailure, TurnReport


def summarise(turns: Sequence[TurnReport], block_size: int) -> str:
    """Say in a few sentences how the replay went: the most wasteful turn, or that nothing was wasted.

    Args:
        turns: the turns of one policy.
        block_size: tokens per cache block; 1 where there are none.
    """
    if not turns:
        return "No request was replayed."
    raised = [turn for turn in turns if turn.error is not None]
    failure = failure_of(turns)
    if failure is not None and failure.turns == failure.of:
        return f"It {fails_sentence(failure)}"
    sentences = [
        _raised_sentence(turns, raised) if raised else None,
        _worst_sentence(turns, block_size),
        _pattern_sentence(turns),
        _first_rewrite(turns),
    ]
    return " ".join(filter(None, sentences))


def failure_of(turns: Sequence[TurnReport]) -> PolicyFailure | None:
    """Return how many turns raise, and why the first does; None where none does."""
    raised = [turn for turn in turns if turn.error is not None]
    if not raised:
        return None
    return PolicyFailure(len(raised), len(turns), raised[0].turn, str(raised[0].error))


def fails_sentence(failure: PolicyFailure) -> str:
    """Say that turns raise, and why, from the verb on."""
    raise_ = "turn raises" if failure.of == 1 else "turns raise"
    return f"fails: {failure.turns} of {failure.of} {raise_}, because {failure.why.rstrip('.')}."


def _raised_sentence(turns: Sequence[TurnReport], raised: Sequence[TurnReport]) -> str:
    failure = failure_of(turns)
    assert failure is not None
    return f"It {fails_sentence(failure)} The first is turn {failure.first_turn}. For the others:"


def _worst_sentence(turns: Sequence[TurnReport], block_size: int) -> str:
    """Describe the turn that wastes most, or say how little is wasted."""
    worst = max(turns, key=lambda turn: turn.avoidable or 0)
    if worst.avoidable:
        return _turn_sentence(worst, block_size)
    diverging = [turn for turn in turns if turn.divergence is not None]
    if not diverging:
        return "Append-only: no turn prefills a token that was already stored."
    return (
        f"Nothing was avoidable with blocks of {block_size} tokens. Still, {len(diverging)} of {len(turns)} "
        f"prompts diverge from what is stored, the first one in turn {diverging[0].turn}; a smaller "
        "--block-size shows the cost."
    )


def _turn_sentence(turn: TurnReport, block_size: int) -> str:
    head = (
        f"Turn {turn.turn} re-prefills {turn.reprefill:,} of {turn.prompt_tokens:,} tokens "
        f"(reused {turn.reused:,})"
    )
    divergence = turn.divergence
    if divergence is None:
        where = f"ends inside a block of {block_size}" if block_size > 1 else "cannot be reused from there"
        return f"{head}: what it shares with the cache {where}, or was evicted."
    return (
        f"{head}; it shares the first {divergence.tokens:,} tokens with turn {divergence.stored_turn} "
        f"and diverges in {_place(divergence, turn.actions)}.{_why(divergence, turn.actions)}"
    )


def _why(divergence: Divergence, actions: Sequence[Action]) -> str:
    """Say what shows the cause, unless the place says it already, and what would prevent it."""
    if divergence.cause is None or divergence.evidence is None:
        return ""
    said = divergence.cause in ("system-hoisted", "note-neighbour-flip") and "which" in _place(
        divergence, actions
    )
    sure = "" if divergence.confirmed or divergence.cause == "other" else " (likely)"
    evidence = "" if said else f" Cause{sure}: {divergence.evidence}."
    remedy = divergence.remedy
    return evidence + (f" Remedy: {remedy.set} (saves {remedy.saves:,} tokens)." if remedy else "")


def _pattern_sentence(turns: Sequence[TurnReport]) -> str | None:
    """Say how long the shared prefix is while the prompts grow, where several turns waste tokens.

    Where it stays within the leading block, a finding says so.
    """
    wasteful = [turn for turn in turns if turn.avoidable and turn.divergence]
    if len(wasteful) < 3 or still_depth(turns):
        return None
    depths = [turn.depth or 0 for turn in wasteful]
    lengths = [turn.prompt_tokens or 0 for turn in wasteful]
    return (
        f"In {len(wasteful)} of {len(turns)} turns the shared prefix is {min(depths):,} to "
        f"{max(depths):,} tokens long, while the prompts have {min(lengths):,} to {max(lengths):,} tokens."
    )


def _first_rewrite(turns: Sequence[TurnReport]) -> str | None:
    """Name the first turn with a placement that the server always rewrites, without testing the template."""
    for turn in turns:
        for action in turn.actions:
            if action.kind == "unsupported":
                which = f" with {named_messages(action.messages)}" if action.messages else ""
                return f"From turn {turn.turn} on no template helps{which}: {action.why}."
    return None


def _place(divergence: Divergence, actions: Sequence[Action]) -> str:
    if divergence.message is None:
        return {
            "tools": "the tool list",
            "generation": "the generation prompt",
            "head": "the text that the template writes before the messages",
        }.get(divergence.region, "a message")
    index = divergence.message.index
    what = "the system prompt" if index is None else f"message {index} ({divergence.message.role})"
    done = [_DONE[action.kind] for action in actions if index in action.messages and action.kind in _DONE]
    return f"{what}, {done[0]}" if done else what


_DONE = {
    "hoisted": "which this server moved into the first system block",
    "noted": "which this server wrote into a neighbouring user turn",
    "relocated": "which this server moved before the user turn",
}
