"""Foreign texts on a terminal: nothing in them may control it, and long ones are folded."""

from __future__ import annotations

from collections.abc import Iterable

#: C0 and C1 controls that would control a terminal, as pictures; tabs and line feeds stay.
_PICTURES = (
    {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"}
    | {0x7F: 0x2421}
    | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
    | {code: 0xFFFD for code in (0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}
)
#: Colours that distinguish neighbouring messages.
_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_red")


def visible(text: str) -> str:
    """Return a text with one visible character for each control character; its length stays."""
    return text.translate(_PICTURES)


def one_line(text: str, most: int) -> str:
    """Return a text as one line of at most about `most` characters that says how long the text is."""
    line = visible(text).replace("\n", "⏎").replace("\t", " ")
    if len(line) <= most:
        return line
    return f"{line[: most - 20]}… ({len(text):,} characters)"


def colour_of(message: int) -> str:
    """Return the colour of a message, by its index in the client's request."""
    return _COLOURS[message % len(_COLOURS)]


def listed(indices: Iterable[int], most: int = 6) -> str:
    """Return message indices as words: the first few, the last, and how many; -1 is the system prompt."""
    names = ["system prompt" if index < 0 else str(index) for index in indices]
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 2])}, … {names[-1]} ({len(names)})"
