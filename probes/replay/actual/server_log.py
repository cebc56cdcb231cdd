"""A server's log beside a transcript: which of its lines belong to which turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputError
from ...transcripts.source import open_source
from .log_lines import LogEntry, read_lines

#: What a pair of turn and entry is worth: prompts of one length, or of lengths that one request can have
#: under two templates or tokenizers.
_SAME_LENGTH, _LIKE_LENGTH = 8, 2
#: Between lengths that are alike, the shorter is at least this part of the longer.
_ALIKE = 0.5


@dataclass(frozen=True, slots=True)
class ServerLog:
    """What a server's log says of its requests.

    Attributes:
        source: the file, as a person named it.
        entries: the requests, in order.
    """

    source: str
    entries: tuple[LogEntry, ...]


@dataclass(frozen=True, slots=True)
class AlignedTurn:
    """A turn as a log is laid beside it.

    Attributes:
        turn: its number.
        prompt_tokens: length of its prompt, as the server said or as it is counted; None where it raised.
        reprefill: tokens that are prefilled by count; None likewise.
    """

    turn: int
    prompt_tokens: int | None
    reprefill: int | None


def read_log(name: str | Path) -> ServerLog:
    """Return what a log says.

    Args:
        name: a file, a named pipe, or `-` for stdin.

    Raises:
        InputError: it cannot be read, is binary, or none of its lines is one that says something.
    """
    source = open_source(name)
    entries = read_lines(source.lines(strict=False))
    if not any(entry.says_reuse for entry in entries):
        raise InputError(
            "no line of this log says how much a server reused",
            where=source.label,
            fix="docs/replay.md lists the servers whose logs do, and the lines",
        )
    return ServerLog(source.label, entries)


def aligned(entries: Sequence[LogEntry], turns: Sequence[AlignedTurn]) -> Mapping[int, LogEntry]:
    """Return the entry of each turn that has one. Both keep their order; what fits no turn is passed over.

    The lengths of the prompts decide. Where a log does not say them and has more requests than there are
    turns, the tokens that were prefilled decide as well.

    Args:
        entries: the log's, in order.
        turns: the session's, in order of arrival.
    """
    by_prefill = guessed(entries, turns)
    rows, columns = len(turns), len(entries)
    best = [[0] * (columns + 1) for _ in range(rows + 1)]
    worth = [[_worth(turn, entry, by_prefill) for entry in entries] for turn in turns]
    for row in range(rows - 1, -1, -1):
        below, here, values = best[row + 1], best[row], worth[row]
        for column in range(columns - 1, -1, -1):
            value = values[column]
            paired = below[column + 1] + value if value else 0
            here[column] = max(paired, below[column], here[column + 1])
    found: dict[int, LogEntry] = {}
    row = column = 0
    while row < rows and column < columns:
        value = worth[row][column]
        if value and best[row][column] == best[row + 1][column + 1] + value:
            found[turns[row].turn] = entries[column]
            row, column = row + 1, column + 1
        elif best[row][column] == best[row][column + 1]:
            column += 1
        else:
            row += 1
    return found


def guessed(entries: Sequence[LogEntry], turns: Sequence[AlignedTurn]) -> bool:
    """Tell whether some entries can be given to turns only by what they prefilled."""
    return len(entries) > len(turns) and any(entry.prompt_tokens is None for entry in entries)


def _worth(turn: AlignedTurn, entry: LogEntry, by_prefill: bool) -> int:
    """Return how well an entry fits a turn; 0 where it cannot be its own."""
    length = turn.prompt_tokens
    if length is None:
        return 1
    if entry.prompt_tokens is None:
        prefilled = entry.prefilled or 0
        if prefilled > length:
            return 0
        return _LIKE_LENGTH + (by_prefill and prefilled == turn.reprefill)
    if entry.prompt_tokens == length:
        return _SAME_LENGTH
    shorter, longer = sorted((entry.prompt_tokens, length))
    return _LIKE_LENGTH if shorter >= _ALIKE * longer else 0
