"""Names that people know conversations by: main, sub-agent of N, title, compaction of N."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .message_keys import nearly_equal

#: Characters from which on a call's text counts where it stands inside a longer first text.
_LONG = 20
#: Words of a request for a title.
_TITLE = ("title", "topic")
#: Words at the beginning of a conversation that goes on from a summary.
_SUMMARY = ("summary", "summar", "continued from a previous", "compact")


@dataclass(slots=True)
class Opening:
    """How a conversation begins.

    Attributes:
        number: of the conversation.
        turns: its requests so far.
        system: the system text of its first request.
        tools: name of its tool list; empty where it has none.
        texts: the texts of the user turns of its first request.
        messages: how many messages that has.
    """

    number: int
    turns: list[int]
    system: str
    tools: bytes
    texts: tuple[str, ...]
    messages: int


@dataclass(frozen=True, slots=True)
class ConversationName:
    """A conversation's name.

    Attributes:
        conversation: its number.
        name: what it is; None where nothing tells.
        guessed: whether that is only likely.
    """

    conversation: int
    name: str | None
    guessed: bool = False

    @property
    def shown(self) -> str:
        """The name for people."""
        return self.name or f"conversation {self.conversation}"


def names_of(
    openings: Sequence[Opening], called: Mapping[str, Mapping[int, int]]
) -> tuple[ConversationName, ...]:
    """Name conversations.

    Args:
        openings: how each begins, in order.
        called: for each text in the arguments of a call, the conversations that made that call, each with
            the first turn that has it.
    """
    callers = {opening.number: _caller(opening, called) for opening in openings}
    main = _main(openings, callers)
    return tuple(_name(opening, openings, callers, main) for opening in openings)


def _caller(opening: Opening, called: Mapping[str, Mapping[int, int]]) -> int | None:
    """Return the conversation whose tool call holds a conversation's first text, the nearest in time."""
    made: dict[int, int] = {}
    for text in opening.texts:
        made |= called.get(text, {}) if text else {}
    if not made.keys() - {opening.number}:
        for text, turns in called.items():
            if len(text) >= _LONG and any(
                text in each and 2 * len(text) >= len(each) for each in opening.texts
            ):
                made |= turns
    begins = opening.turns[0]
    others = [(abs(turn - begins), number) for number, turn in made.items() if number != opening.number]
    return min(others)[1] if others else None


def _main(openings: Sequence[Opening], callers: Mapping[int, int | None]) -> tuple[int, bool]:
    """Return the number of the main conversation, and whether that is a guess."""
    calling = [number for number in callers.values() if number is not None and callers[number] is None]
    if calling:
        return min(calling), False
    most = max(openings, key=lambda opening: (len(opening.turns), -opening.number), default=None)
    return (most.number if most else 0), len(openings) > 1


def _name(
    opening: Opening, openings: Sequence[Opening], callers: Mapping[int, int | None], main: tuple[int, bool]
) -> ConversationName:
    number = opening.number
    caller = callers[number]
    if caller is not None:
        return ConversationName(number, f"sub-agent of {caller}")
    before = _compacted(opening, openings, callers, main[0])
    if before is not None:
        return ConversationName(number, f"compaction of {before}", not _says_summary(opening))
    if number == main[0]:
        return ConversationName(number, "main", main[1])
    if _is_title(opening, openings):
        return ConversationName(number, "title", not any(word in opening.system.lower() for word in _TITLE))
    return ConversationName(number, None)


def _compacted(
    opening: Opening, openings: Sequence[Opening], callers: Mapping[int, int | None], main: int
) -> int | None:
    """Return the conversation that another one takes the place of: it has its system text and then ends."""
    said = _says_summary(opening)
    agents = {main, *(number for number in callers.values() if number is not None)}
    return max(
        (
            other.number
            for other in openings
            if other.turns[-1] < opening.turns[0]
            and len(other.turns) > 1
            and callers[other.number] is None
            and (said or (other.number in agents and opening.tools))
            and opening.system
            and nearly_equal(other.system, opening.system)
        ),
        default=None,
    )


def _says_summary(opening: Opening) -> bool:
    return any(word in text[:400].lower() for text in opening.texts for word in _SUMMARY)


def _is_title(opening: Opening, openings: Sequence[Opening]) -> bool:
    """Tell whether a conversation is one request without tools that quotes the first text of another."""
    if len(opening.turns) > 1 or opening.tools:
        return False
    if any(word in opening.system.lower() for word in _TITLE):
        return True
    return any(
        text in mine
        for other in openings
        if other.number != opening.number and len(other.turns) > 1
        for text in other.texts[-1:]
        if text
        for mine in opening.texts
    )
