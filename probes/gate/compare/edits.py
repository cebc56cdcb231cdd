"""What two prompts differ in: a diff for people, and the single edits by which equal changes are found."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from ...text import common_prefix

#: Lines before and after a change that a diff shows.
_CONTEXT = 2
_MOST_LINES = 8
_LONGEST_LINE = 160
_LETTERS = string.ascii_letters + string.digits
_MIRRORED = str.maketrans("<>", "><")
_LONGEST_TAG = 40
_WORD = re.compile(r"zq[a-z]+zq")

#: A text that was taken out, and the one that was put in instead.
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Edit:
    """How one prompt became another.

    Attributes:
        offset: characters that both share at the beginning.
        hunks: what was taken out and put in, each pair once, in order, with its lines of a diff. Those begin
            with a blank, `-` or `+`; `⏎` stands for a line's end.
    """

    offset: int
    hunks: Mapping[Pair, tuple[str, ...]]

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """What was taken out and put in; `…` stands for the made-up words."""
        return tuple(self.hunks)


def edit(base: str, head: str) -> Edit:
    """Compare two different prompts."""
    old, new = base.splitlines(keepends=True), head.splitlines(keepends=True)
    hunks: dict[Pair, tuple[str, ...]] = {}
    for tag, first, last, start, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            removed, added = _trimmed("".join(old[first:last]), "".join(new[start:end]))
            pair = (_WORD.sub("…", removed), _WORD.sub("…", added))
            lines = (
                *(f" {_visible(line)}" for line in old[max(first - _CONTEXT, 0) : first]),
                *_shown("-", old[first:last]),
                *_shown("+", new[start:end]),
                *(f" {_visible(line)}" for line in old[last : last + _CONTEXT]),
            )
            hunks.setdefault(pair, lines)
    return Edit(common_prefix(base, head), hunks)


def _shown(mark: str, lines: Sequence[str]) -> Iterator[str]:
    """Yield lines of a diff, not too many."""
    yield from (f"{mark}{_visible(line)}" for line in lines[:_MOST_LINES])
    if len(lines) > _MOST_LINES:
        yield f"{mark}… {len(lines) - _MOST_LINES} more lines"


def _trimmed(old: str, new: str) -> Pair:
    """Trim what two texts have in common at both ends, but no part of a word or of a `<tag>`."""
    start = _whole(old[: common_prefix(old, new)], old, new)
    old, new = old[start:], new[start:]
    # The same from the other end, where a tag begins with its `>`.
    end = _whole(*(text[::-1].translate(_MIRRORED) for text in (_common_end(old, new), old, new)))
    return (old[: len(old) - end], new[: len(new) - end])


def _whole(common: str, old: str, new: str) -> int:
    """Return the length of a common beginning without the part of a word or tag that it ends with."""
    start = len(common)
    if (old[start : start + 1] or new[start : start + 1]).isalnum():
        start = len(common.rstrip(_LETTERS))
    tag = common.rfind("<", max(0, start - _LONGEST_TAG), start)
    return tag if tag > common.rfind(">", 0, start) else start


def _common_end(old: str, new: str) -> str:
    length = common_prefix(old[::-1], new[::-1])
    return old[len(old) - length :]


def _visible(line: str) -> str:
    shown = line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…"
    return shown.replace("\n", "⏎").replace("\t", "⇥").replace("\r", "␍")
