"""The ignore file: findings that somebody has looked at and accepted, each with the reason.

A TOML file with one table per acceptance::

    [[ignore]]
    rule = "system-raises"
    reason = "served only behind a server that moves system turns to the front"
    source = "models/strict*"     # optional: a shell pattern for what was probed
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from .errors import InputError
from .findings import RULES, Finding

_KEYS = frozenset({"rule", "reason", "source"})


@dataclass(frozen=True, slots=True)
class Ignore:
    """One entry of the file.

    Attributes:
        rule: id of the rule whose findings are accepted.
        reason: why, in the words of whoever accepted them.
        source: shell pattern of the inputs that it is about.
    """

    rule: str
    reason: str
    source: str = "*"


@dataclass(frozen=True, slots=True)
class Ignored:
    """A finding that was accepted, and why."""

    finding: Finding
    reason: str


def read_ignore_file(path: Path) -> tuple[Ignore, ...]:
    """Read an ignore file.

    Raises:
        InputError: it cannot be read, names a rule that does not exist, or gives no reason.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        what = (error.strerror or "cannot be read").lower()
        raise InputError(what, where=str(path), fix="check the path") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"not a TOML file ({error})", where=str(path), fix="see docs/findings.md") from None
    entries = document.pop("ignore", [])
    if document or not isinstance(entries, list):
        raise InputError(
            "holds something else than [[ignore]] entries", where=str(path), fix="see docs/findings.md"
        )
    return tuple(_entry(value, f"{path}, entry {number}") for number, value in enumerate(entries, 1))


def _entry(value: Any, where: str) -> Ignore:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise InputError("not a table of texts", where=where, fix="write rule and reason as texts")
    unknown = sorted(value.keys() - _KEYS)
    if unknown:
        raise InputError(f"unknown key {unknown[0]!r}", where=where, fix=f"use {', '.join(sorted(_KEYS))}")
    rule = value.get("rule", "")
    if rule not in RULES:
        raise InputError(f"there is no rule {rule!r}", where=where, fix="see `tplaudit rules`")
    reason = value.get("reason", "").strip()
    if not reason:
        raise InputError("no reason is given", where=where, fix='add reason = "why this is accepted"')
    return Ignore(rule, reason, value.get("source", "*"))


def apply_ignores(
    findings: Iterable[Finding], ignores: Iterable[Ignore], source: str
) -> tuple[tuple[Finding, ...], tuple[Ignored, ...]]:
    """Part the findings about one input into those that count and those that were accepted."""
    entries = [entry for entry in ignores if fnmatch(source, entry.source)]
    kept, accepted = [], []
    for finding in findings:
        entry = next((each for each in entries if each.rule == finding.rule), None)
        if entry is None:
            kept.append(finding)
        else:
            accepted.append(Ignored(finding, entry.reason))
    return tuple(kept), tuple(accepted)
