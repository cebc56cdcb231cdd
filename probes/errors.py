"""The errors of this package: each says what was wrong, where, and what to do about it."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

#: The most of an exception's text that is kept, in characters; a template may raise a whole conversation.
_LONGEST_MESSAGE = 300


class TplauditError(Exception):
    """Nothing can be done with what was given; the command line turns this into exit code 2.

    Args:
        what: what is wrong, one sentence without a full stop.
        where: file, `file:line`, or message index that it is about, if any.
        fix: what the person can do, one clause, if anything.
    """

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None) -> None:
        self.what = what
        self.where = where
        self.fix = fix
        text = f"{where}: {what}" if where else what
        super().__init__(f"{text}; {fix}" if fix else text)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what it was made of, for other processes."""
        return partial(type(self), self.what, where=self.where, fix=self.fix), ()


class InputError(TplauditError):
    """A transcript, template, tokenizer or model that cannot be read."""


class UsageError(TplauditError):
    """Options that contradict each other or do not exist."""


class RenderError(Exception):
    """A template did not render a conversation. A row of a report, not the end of a run.

    Args:
        kind: the exception's class name as Jinja or the template raised it (`TemplateError`, `TypeError`,
            `UndefinedError`, ...), or `RenderLimit` where this package stopped the render.
        message: the exception's text, of which the first 300 characters are kept.
        line: the line of the template source that raised, counted from 1, where known.
    """

    def __init__(self, kind: str, message: str, line: int | None = None) -> None:
        self.kind = kind
        self.message = _shortened(message)
        self.line = line
        super().__init__(f"{kind}: {self.message}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what it was made of, for other processes."""
        return RenderError, (self.kind, self.message, self.line)

    @property
    def clause(self) -> str:
        """What the template did, to stand behind its name: `raises TypeError: …`."""
        return f"raises {self}"


class RenderLimit(RenderError):
    """The render exceeded its bound of time, output or memory, and was stopped: nothing the template did.

    Args:
        message: which bound, such as `too slow: it did not finish within 10 s of CPU time`.
    """

    def __init__(self, message: str) -> None:
        super().__init__("RenderLimit", message)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what it was made of, for other processes."""
        return RenderLimit, (self.message,)

    def __str__(self) -> str:
        return f"not evaluated, {self.message}"

    @property
    def clause(self) -> str:
        """That it was not evaluated, and why, to stand behind its name."""
        return f"is {self}"


def brief(error: Exception) -> str:
    """Return an exception as a clause: its kind and the beginning of its text."""
    text = re.sub(r"\s+", " ", str(error)).strip()
    return f"{type(error).__name__}: {text[:160]}{'…' if len(text) > 160 else ''}"


def _shortened(message: str) -> str:
    if len(message) <= _LONGEST_MESSAGE:
        return message
    rest = f"… ({len(message):,} characters)"
    return message[: _LONGEST_MESSAGE - len(rest)] + rest
