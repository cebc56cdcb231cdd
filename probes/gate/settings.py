"""The gate's settings: a table of tplaudit.toml or pyproject.toml, and over it what the command line says."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import InputError, UsageError
from .allowances import Allowance, KnownFailure, read_allowances, read_known_failure
from .budgets import BUDGETS, Budget, read_budget_table
from .rules import GATE_RULES

#: Where settings are looked for, in this order.
FILES = ("tplaudit.toml", "pyproject.toml")
#: Tokens per second that any machine may have.
_RATES = (0.001, 1e9)
_TEXTS = ("base", "head", "transcripts", "tokenizer", "calibration")
_LISTS = ("policies", "allow")
_KEYS = {*_TEXTS, *_LISTS, "kwargs", "prefill-rate", "block-size", "budget", "ignore"}


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

    def check(self) -> GateSettings:
        """Return the settings.

        Raises:
            UsageError: the rate is none, or seconds would be predicted from two things.
        """
        if self.prefill_rate is not None and not _fits(self.prefill_rate):
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
    try:
        document: Any = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        what = (error.strerror or "cannot be read").lower()
        raise InputError(what, where=str(path), fix="check the path") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"not a TOML file ({error})", where=str(path), fix="see docs/gate.md") from None
    if path.name == "pyproject.toml":
        document = _table(_table(document, "tool", path), "tplaudit", path)
    return _settings(_table(document, "gate", path), path)


def _table(document: Mapping[str, Any], key: str, path: Path) -> dict[str, Any]:
    value = document.get(key, {})
    if not isinstance(value, dict):
        raise InputError(f"{key} is no table", where=str(path), fix="see docs/gate.md")
    return value


def _settings(table: Mapping[str, Any], path: Path) -> GateSettings:
    where = f"{path}, [gate]"
    unknown = sorted(table.keys() - _KEYS)
    if unknown:
        raise InputError(f"unknown key {unknown[0]!r}", where=where, fix=f"use {', '.join(sorted(_KEYS))}")
    for name in _TEXTS:
        if not isinstance(table.get(name, ""), str):
            raise InputError(f"{name} is no text", where=where, fix=f'write it like {name} = "…"')
    for name in _LISTS:
        value = table.get(name, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise InputError(f"{name} is no list of texts", where=where, fix=f'write it like {name} = ["…"]')
    rate, block = table.get("prefill-rate"), table.get("block-size")
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | float) or not _fits(rate)):
        raise InputError("prefill-rate is no rate", where=where, fix="write tokens per second")
    if block is not None and (isinstance(block, bool) or not isinstance(block, int) or block < 1):
        raise InputError("block-size is no size", where=where, fix="write a number of tokens")
    budgets = [
        budget
        for number, value in enumerate(_tables(table, "budget", where), 1)
        for budget in read_budget_table(value, f"{path}, budget {number}")
    ]
    rules = (*GATE_RULES, *BUDGETS)
    known = [
        read_known_failure(value, f"{path}, ignore {number}", rules)
        for number, value in enumerate(_tables(table, "ignore", where), 1)
    ]
    return GateSettings(
        **{name: table.get(name) for name in _TEXTS},
        policies=tuple(table.get("policies", ())),
        kwargs=_table(table, "kwargs", path),
        block_size=block,
        prefill_rate=rate,
        budgets=tuple(budgets),
        allowances=read_allowances(table.get("allow", ())),
        known=tuple(known),
    )


def _fits(rate: float) -> bool:
    return _RATES[0] <= rate <= _RATES[1]


def _tables(table: Mapping[str, Any], key: str, where: str) -> list[Any]:
    value = table.get(key, [])
    if not isinstance(value, list):
        raise InputError(f"{key} is no list of tables", where=where, fix=f"write [[gate.{key}]]")
    return value
