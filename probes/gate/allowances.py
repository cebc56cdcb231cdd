"""What people have agreed to: changes that are meant (`--allow`), and known failures with a reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase

from ..errors import UsageError
from .subject import Subject

_KINDS = ("changed", "new")


@dataclass(frozen=True, slots=True)
class Allowance:
    """A change that is meant.

    Attributes:
        kind: `changed`, or `new` for templates that the base does not have.
        pattern: shell pattern for rules, for conversations, or for groups of conversations.
    """

    kind: str
    pattern: str = "*"

    @property
    def text(self) -> str:
        """The allowance as it was written."""
        return self.kind if self.kind == "new" else f"{self.kind}:{self.pattern}"


@dataclass(frozen=True, slots=True)
class KnownFailure:
    """An entry of the ignore list.

    Attributes:
        rule: id of the rule, or name of the budget.
        reason: why it is accepted.
        where: shell pattern for the subjects that it is about.
        expires: the last day on which it counts; None for ever.
    """

    rule: str
    reason: str
    where: str = "*"
    expires: date | None = None

    def expired(self, today: date) -> bool:
        """Return whether it no longer counts."""
        return self.expires is not None and today > self.expires

    def covers(self, rule: str, subject: Subject) -> bool:
        """Return whether a failure is the known one."""
        return rule == self.rule and _matches(self.where, subject)

    @property
    def text(self) -> str:
        """The entry in short."""
        return self.rule if self.where == "*" else f"{self.rule} {self.where}"


def read_allowances(items: Iterable[str]) -> tuple[Allowance, ...]:
    """Read `changed:PATTERN` and `new`. Raises UsageError where an item is neither."""
    return tuple(_allowance(item) for item in items)


def _allowance(item: str) -> Allowance:
    kind, _, pattern = item.partition(":")
    if kind not in _KINDS or (kind == "new") == bool(pattern):
        raise UsageError(
            f"{item!r} cannot be allowed",
            where="--allow",
            fix="write changed:PATTERN, such as changed:tools/*, or new; for a regression write an "
            "[[gate.ignore]] entry with a reason",
        )
    return Allowance(kind, pattern or "*")


def allowing(allowances: Sequence[Allowance], rule: str, subject: Subject) -> Allowance | None:
    """Return the allowance that covers a change, if any."""
    return next(
        (
            each
            for each in allowances
            if each.kind == "changed" and (fnmatchcase(rule, each.pattern) or _matches(each.pattern, subject))
        ),
        None,
    )


def _matches(pattern: str, subject: Subject) -> bool:
    """Return whether a pattern names a subject in any of the ways that a person may."""
    return any(fnmatchcase(name, pattern) for name in subject.names)
