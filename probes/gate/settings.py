"""The gate's settings: a table of tplaudit.toml or pyproject.toml, and over it what the command line says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ..documents import typed
from ..errors import InputError, UsageError
from ..files import read_toml
from .allowances import Allowance, KnownFailure, read_allowances
from .budgets import BUDGETS, Budget, read_limit
from .rules import GATE_RULES

#: Where settings are looked for, in this order.
FILES = ("tplaudit.toml", "pyproject.toml")
#: Tokens per second that any machine may have.
_RATES = (0.001, 1e9)
#: A limit as it is written in a file.
_Written = str | int | float | None
_SEE = "see docs/gate.md for the keys and their values"


@dataclass(frozen=True, slots=True)
class GateSettings:
    """What a gate compares and asks for.

    Attributes:
        base: what was before.
        head: what is now.
        transcripts: a folder of transcripts, or one transcript; None for none.
        policies: servers' policies under which transcripts are replayed.
        tokenizer: as `tplaudit replay --tokenizer`.
        kwargs: chat-template kwargs of all renders.
        block_size: tokens per block of a paged cache in the place of the servers' own caches; None for those.
        prefill_rate: tokens per second, for predicted seconds.
        calibration: a file of measured prefills for them; None for that of the model on this machine.
        budgets: limits for replays.
        allowances: changes that are meant.
        known: failures that are known.
    """

    base: str | None = None
    head: str | None = None
    transcripts: str | None = None
    policies: tuple[str, ...] = ()
    tokenizer: str | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    block_size: int | None = None
    prefill_rate: float | None = None
    calibration: str | None = None
    budgets: tuple[Budget, ...] = ()
    allowances: tuple[Allowance, ...] = ()
    known: tuple[KnownFailure, ...] = ()

    @property
    def limits_seconds(self) -> bool:
        """Whether a budget limits predicted seconds."""
        return any(budget.name == "max-seconds" for budget in self.budgets)

    @property
    def replays(self) -> bool:
        """Whether transcripts are replayed."""
        return bool(self.transcripts or self.policies or self.budgets)

    def check(self) -> GateSettings:
        """Return the settings.

        Raises:
            UsageError: the rate is none, or seconds would be predicted from two things.
        """
        if self.prefill_rate is not None and not _RATES[0] <= self.prefill_rate <= _RATES[1]:
            raise UsageError(
                f"{self.prefill_rate:g} is no rate", where="prefill-rate", fix="give tokens per second"
            )
        if self.prefill_rate is not None and self.calibration is not None:
            raise UsageError(
                "seconds are predicted from one thing", where="calibration", fix="leave the prefill rate out"
            )
        return self

    def over(self, **given: Any) -> GateSettings:
        """Return the settings with those of the command line over them; what is None or empty stays."""
        changes = {name: value for name, value in given.items() if value not in (None, (), {})}
        for name in ("budgets", "allowances", "known"):
            if name in changes:
                changes[name] = (*getattr(self, name), *changes[name])
        for name, instead in (("calibration", "prefill_rate"), ("prefill_rate", "calibration")):
            if name in changes:
                changes.setdefault(instead, None)
        if "kwargs" in changes:
            changes["kwargs"] = {**self.kwargs, **changes["kwargs"]}
        return replace(self, **changes)


def find_settings(folder: Path) -> GateSettings:
    """Read a folder's `[gate]` of tplaudit.toml, else `[tool.tplaudit.gate]` of pyproject.toml.

    Raises:
        InputError: see `read_settings`.
    """
    for name in FILES:
        if (folder / name).is_file():
            return read_settings(folder / name)
    return GateSettings()


def read_settings(path: Path) -> GateSettings:
    """Read the settings of one file; those of a file without a table for the gate are all defaults.

    Raises:
        InputError: it cannot be read, or says something that does not exist.
    """
    document = read_toml(path, "see docs/gate.md")
    if path.name == "pyproject.toml":
        document = _table(_table(document, "tool", path), "tplaudit", path)
    return _settings(_table(document, "gate", path), path)


def _table(document: Mapping[str, Any], key: str, path: Path) -> dict[str, Any]:
    value = document.get(key, {})
    if not isinstance(value, dict):
        raise InputError(f"{key} is no table", where=str(path), fix="see docs/gate.md")
    return value


class _BudgetTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """One `[[gate.budget]]` table, which may set several limits."""

    policy: str = "*"
    transcript: str = "*"
    max_avoidable_tokens: _Written = None
    max_reprefill_ratio: _Written = None
    min_divergence_depth: _Written = None
    max_seconds: _Written = None

    def limits(self) -> dict[str, str | float]:
        """Return the limits by the names of their budgets."""
        found = {name: getattr(self, name.replace("-", "_")) for name in BUDGETS}
        return {name: limit for name, limit in found.items() if limit is not None}


class _IgnoreTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[gate.ignore]]` table."""

    rule: str
    reason: Annotated[str, msgspec.Meta(pattern=r"\S")]
    where: str = "*"
    expires: date | None = None


class _GateTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """The `[gate]` table."""

    base: str | None = None
    head: str | None = None
    transcripts: str | None = None
    tokenizer: str | None = None
    calibration: str | None = None
    policies: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    prefill_rate: Annotated[float, msgspec.Meta(ge=_RATES[0], le=_RATES[1])] | None = None
    block_size: Annotated[int, msgspec.Meta(ge=1)] | None = None
    budget: tuple[dict[str, Any], ...] = ()
    ignore: tuple[dict[str, Any], ...] = ()


#: Keys of the table whose values are read further.
_READ_APART = ("budget", "ignore", "allow")


def _settings(document: Mapping[str, Any], path: Path) -> GateSettings:
    table = typed(document, _GateTable, f"{path}, [gate]", _SEE)
    budgets = (
        budget
        for number, value in enumerate(table.budget, 1)
        for budget in _budgets(value, f"{path}, budget {number}")
    )
    known = (_known(value, f"{path}, ignore {number}") for number, value in enumerate(table.ignore, 1))
    own = {name: value for name, value in msgspec.structs.asdict(table).items() if name not in _READ_APART}
    return GateSettings(
        **own, budgets=tuple(budgets), allowances=read_allowances(table.allow), known=tuple(known)
    )


def _budgets(value: dict[str, Any], where: str) -> Iterator[Budget]:
    table = typed(value, _BudgetTable, where, _SEE)
    limits = table.limits()
    if not limits:
        raise InputError("no limit is set", where=where, fix=f"set {', '.join(BUDGETS)}")
    for name, limit in limits.items():
        yield Budget(name, read_limit(str(limit), where, InputError), table.policy, table.transcript)


def _known(value: dict[str, Any], where: str) -> KnownFailure:
    table = typed(
        value, _IgnoreTable, where, 'write it like rule = "text-lost", reason = "why this is accepted"'
    )
    if table.rule not in (*GATE_RULES, *BUDGETS):
        raise InputError(
            f"there is no rule {table.rule!r}", where=where, fix="see docs/gate.md for their names"
        )
    return KnownFailure(table.rule, table.reason.strip(), table.where or "*", table.expires)
