"""A unified diff of two prompts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..text import common_prefix

_LINE = re.compile(r"[^\n]*\n|[^\n]+\Z")
_UNFINISHED = "\n\\ No newline at end of file\n"


@dataclass(frozen=True, slots=True)
class DiffSide:
    """One of the prompts that are compared. The field names are the JSON names.

    Attributes:
        policy: as the person named it.
        turn: the request, counted from 1.
        error: why there is no prompt, or None.
    """

    policy: str
    turn: int
    error: str | None

    def __str__(self) -> str:
        return f"{self.policy}, turn {self.turn}"


@dataclass(frozen=True, slots=True)
class PromptDiff:
    """Two prompts compared. The field names are the JSON names.

    Attributes:
        before: what is compared.
        after: what it is compared with.
        same: whether both are the same text; None where one is missing.
        shared_chars: leading characters that both share (counted); None where one is missing.
        unified: the unified diff, empty where they are the same; None where one is missing.
    """

    before: DiffSide
    after: DiffSide
    same: bool | None
    shared_chars: int | None
    unified: str | None


def compare(before: DiffSide, old: str | None, after: DiffSide, new: str | None) -> PromptDiff:
    """Compare two prompts, either of which may be missing."""
    if old is None or new is None:
        return PromptDiff(before, after, None, None, None)
    return PromptDiff(
        before, after, old == new, common_prefix(old, new), unified(old, new, str(before), str(after))
    )


def unified(old: str, new: str, old_name: str, new_name: str) -> str:
    """Return the unified diff of two texts, which only line feeds divide into lines."""
    lines = difflib.unified_diff(_LINE.findall(old), _LINE.findall(new), old_name, new_name)
    return "".join(_finished(lines))


def _finished(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield line if line.endswith("\n") else line + _UNFINISHED
