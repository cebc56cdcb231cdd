"""One sentence that a person can act on, in the words that server logs use."""

from __future__ import annotations

from collections.abc import Sequence

from .policies.base import Action
from .report import Divergence, TurnReport


def summarise(turns: Sequence[TurnReport], block_size: int) -> str:
    """Say in one sentence how the replay went: the most wasteful turn, or that nothing was wasted.

    Args:
        turns: the turns of one policy.
        block_size: tokens per cache block.
    """
    rendered = [turn for turn in turns if turn.error is None]
    failed = len(turns) - len(rendered)
    if not turns:
        return "No request was replayed."
    if not rendered:
        return f"No turn rendered: {turns[0].error}."
    raised = f" {failed} of {len(turns)} turns raised, first turn {_first_error(turns)}." if failed else ""
    worst = max(rendered, key=lambda turn: turn.avoidable or 0)
    if not worst.avoidable:
        return f"Append-only: no turn prefills a token that was already stored.{raised}"
    return f"{_turn_sentence(worst, block_size)}{raised}"


def _first_error(turns: Sequence[TurnReport]) -> str:
    first = next(turn for turn in turns if turn.error is not None)
    return f"{first.turn} ({first.error})"


def _turn_sentence(turn: TurnReport, block_size: int) -> str:
    head = (
        f"Turn {turn.turn} re-prefills {turn.reprefill:,} of {turn.prompt_tokens:,} tokens "
        f"(reused {turn.reused:,})"
    )
    parted = turn.divergence
    if parted is None:
        return f"{head}: what it shares with the cache ends inside a block of {block_size} or was dropped."
    return (
        f"{head}; it shares the first {parted.tokens:,} tokens with turn {parted.stored_turn} and then differs "
        f"in {_place(parted, turn.actions)}."
    )


def _place(parted: Divergence, actions: Sequence[Action]) -> str:
    if parted.message is None:
        return {
            "tools": "the tool list",
            "generation": "the generation prompt",
            "head": "the text that the template writes before the messages",
        }.get(parted.region, "a message")
    index = parted.message.index
    what = f"message {index} ({parted.message.role})"
    done = [_DONE[action.kind] for action in actions if index in action.messages and action.kind in _DONE]
    return f"{what}, {done[0]}" if done else what


_DONE = {
    "hoisted": "which this server moved into the first system block",
    "noted": "which this server wrote into a neighbouring user turn",
    "relocated": "which this server moved before the user turn",
}
