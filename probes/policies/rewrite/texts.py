"""Texts built from several messages, and which message each of their characters came from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...conversation import Message, Piece


@dataclass(frozen=True, slots=True)
class Text:
    """A text and its owners.

    Attributes:
        text: the characters.
        owners: pairs of an offset and the client's index of the message that owns the characters from there
            on, in ascending order, the first at 0.
    """

    text: str
    owners: tuple[tuple[int, int], ...]

    def __bool__(self) -> bool:
        return bool(self.text)

    def wrapped(self, prefix: str, suffix: str) -> Text:
        """Return the text between two others, which its first and its last owner get."""
        first, *later = self.owners
        shifted = ((start + len(prefix), owner) for start, owner in later)
        return Text(f"{prefix}{self.text}{suffix}", (first, *shifted))

    def cut(self, start: int, stop: int) -> Text:
        """Return the characters from offset `start` to before `stop`, with their owners."""
        before = [pair for pair in self.owners if pair[0] <= start][-1:]
        inside = ((at - start, owner) for at, owner in self.owners if start < at < stop)
        return Text(self.text[start:stop], ((0, before[0][1]), *inside))

    def pieces(self, part: int | None = None) -> tuple[Piece, ...]:
        """Return the owners as pieces of a content string, or of part `part` of a content list."""
        return tuple(Piece(start, owner, part) for start, owner in self.owners)


def join(texts: Iterable[Text], separator: str) -> Text:
    """Return the texts as one. A separator belongs to the text after it."""
    strings: list[str] = []
    owners: list[tuple[int, int]] = []
    end = 0
    for text in texts:
        begin = end + len(separator) if strings else 0
        for start, owner in text.owners:
            at = begin + start if start else end
            if owners and owners[-1][0] == at:
                owners.pop()
            if not owners or owners[-1][1] != owner:
                owners.append((at, owner))
        strings.append(text.text)
        end = begin + len(text.text)
    return Text(separator.join(strings), tuple(owners))


def content_text(message: Message, part: int | None, text: str) -> Text:
    """Return a content string, or the text of one part of a content list, with its owners."""
    owners = tuple((piece.start, piece.message) for piece in message.pieces if piece.part == part)
    return Text(text, owners or ((0, message.index),))


def flat_text(message: Message) -> Text:
    """Return a message's content as one text: the text parts of a list joined by newlines, others left out.

    Content that is neither string nor list is written as Python writes it; a missing one is empty.
    """
    content = message.content
    if isinstance(content, list):
        texts = ((n, part_text(part)) for n, part in enumerate(content))
        return join((content_text(message, n, text) for n, text in texts if text is not None), "\n")
    return content_text(message, None, str(content) if content else "")


def part_text(part: Any) -> str | None:
    """Return the text of one part of a content list, or None where it is not text."""
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and part.get("type") == "text":
        text = part.get("text")
        return "" if text is None else str(text)
    return None


def cover(message: Message) -> tuple[Piece, ...]:
    """Return pieces that cover all of a message's content, also where the message itself has none."""
    parts = range(len(message.content)) if isinstance(message.content, list) else (None,)
    return tuple(piece for part in parts for piece in content_text(message, part, "").pieces(part))


def rebuilt(message: Message, content: Any, pieces: tuple[Piece, ...]) -> Message:
    """Return `message` with another content, and pieces only where not all of it is the message's own."""
    own = all(piece.message == message.index for piece in pieces)
    return message.replace(pieces=() if own else pieces, content=content)


def joined_contents(earlier: Message, later: Message, separator: str) -> Message:
    """Return `earlier` with the contents of two messages, both of them texts, as one text."""
    text = join((content_text(each, None, each.content) for each in (earlier, later)), separator)
    return rebuilt(earlier, text.text, text.pieces())
