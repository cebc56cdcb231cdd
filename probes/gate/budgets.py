"""Budgets: limits for what a transcript's replay may cost, absolute or relative to the base's template."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from ..errors import TplauditError, UsageError
from .observe.replays import ReplayNumbers
from .prediction import Predictor
from .report import BudgetResult

#: The budgets and what each limits.
BUDGETS: Mapping[str, str] = {
    "max-avoidable-tokens": "avoidable tokens of all turns together (counted)",
    "max-reprefill-ratio": "re-prefilled tokens as a share of all prompt tokens (counted), from 0 to 1",
    "min-divergence-depth": "tokens shared with the closest stored prompt, where that is the fewest "
    "(counted)",
    "max-seconds": "seconds for the re-prefilled tokens of all turns (predicted)",
}
_LIMIT = re.compile(
    r"(?P<base>base)?\s*(?:(?P<sign>[+-])?\s*(?P<number>\d{1,15}(?:\.\d{1,15})?)(?P<percent>%)?)?"
)


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit: a number, or the base's number with something added.

    Attributes:
        text: as it was written.
        relative: whether it starts from the base's number.
        number: what is added to that, or the number itself.
        percent: whether what is added is a percentage of the base's number.
    """

    text: str
    relative: bool
    number: float
    percent: bool

    def of(self, base: float | None) -> float | None:
        """Return the number that the limit comes to; None where the base has none to start from."""
        if not self.relative:
            return self.number
        if base is None:
            return None
        return base + (base * self.number / 100 if self.percent else self.number)


@dataclass(frozen=True, slots=True)
class Budget:
    """One budget.

    Attributes:
        name: one of `BUDGETS`.
        limit: how much, or how deep.
        policy: shell pattern for policies as they were named.
        transcript: shell pattern for transcripts, or for the names of their files.
    """

    name: str
    limit: Limit
    policy: str = "*"
    transcript: str = "*"

    def covers(self, numbers: ReplayNumbers) -> bool:
        """Return whether the budget is about a replay."""
        names = (numbers.transcript, Path(numbers.transcript).name, Path(numbers.transcript).stem)
        return _is(numbers.policy, self.policy) and any(_is(name, self.transcript) for name in names)


def _is(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


def read_limit(written: str, where: str, error: type[TplauditError] = UsageError) -> Limit:
    """Read a limit such as `1000`, `base`, `base+5%` or `base-200`. Raises `error` where it is none."""
    text = written.strip()
    match = _LIMIT.fullmatch(text)
    parts = match.groupdict() if match else {}
    fits = bool(text) and match is not None
    if parts.get("base"):
        fits = fits and bool(parts["sign"]) == bool(parts["number"])
    else:
        fits = fits and not parts.get("sign") and not parts.get("percent")
    if not fits:
        raise error(
            f"{text!r} is no limit",
            where=where,
            fix="write a number, or base, base+5%, base-200 and the like",
        )
    number = float(parts["number"] or 0)
    return Limit(
        text, bool(parts["base"]), -number if parts["sign"] == "-" else number, bool(parts["percent"])
    )


def read_budget_option(name: str, text: str) -> Budget:
    """Read `LIMIT[@POLICY[@TRANSCRIPT]]`. Raises UsageError where the limit is none."""
    limit, _, rest = text.partition("@")
    policy, _, transcript = rest.partition("@")
    return Budget(name, read_limit(limit, f"--{name}"), policy or "*", transcript or "*")


def evaluate(
    budgets: Sequence[Budget],
    replays: Sequence[tuple[ReplayNumbers, ReplayNumbers]],
    predictor: Predictor | None,
) -> Iterator[BudgetResult]:
    """Yield the result of every budget for every replay that it is about.

    A budget that is about no replay, or a replay of which no turn rendered, is not kept: nothing was checked.
    """
    for budget in budgets:
        found = [(base, head) for base, head in replays if budget.covers(head)]
        for base, head in found:
            yield _result(budget, base, head, predictor)
        if not found:
            names = (budget.name, budget.policy, budget.transcript)
            what = "nothing was checked: no transcript and policy have these names"
            yield BudgetResult(*names, budget.limit.text, reason=what)


def _result(
    budget: Budget, base: ReplayNumbers, head: ReplayNumbers, predictor: Predictor | None
) -> BudgetResult:
    was, now = _number(budget.name, base, predictor), _number(budget.name, head, predictor)
    allowed = budget.limit.of(was)
    result = BudgetResult(
        budget.name,
        head.policy,
        head.transcript,
        budget.limit.text,
        None if allowed is None else round(allowed, 6),
        was,
        now,
        error=_error(budget, now, predictor),
    )
    if not head.rendered:
        return replace(result, reason=f"nothing was checked: no turn rendered ({head.error})")
    if now is None:  # no prompt diverges from what was stored
        return replace(result, passed=True, reason="no turn diverges")
    if allowed is None:
        if budget.name == "min-divergence-depth" and base.rendered:
            return replace(result, reason="with the base no turn diverges")
        return replace(result, reason="nothing to compare with: no turn rendered with the base")
    kept = now >= allowed if budget.name.startswith("min-") else now <= allowed
    reason = BUDGETS[budget.name]
    if budget.limit.relative and base.raised > head.raised and not kept:
        reason += (
            f"; with the base {base.raised} of {base.turns} turns raised, which cost nothing: a number is a "
            "better limit than base here"
        )
    return replace(result, passed=kept, reason=reason)


def _error(budget: Budget, number: float | None, predictor: Predictor | None) -> float | None:
    """Return the error of a predicted number, where that is known; what is counted has none."""
    if budget.name != "max-seconds" or number is None or predictor is None or predictor.error is None:
        return None
    return round(number * predictor.error, 6)


def _number(name: str, numbers: ReplayNumbers, predictor: Predictor | None) -> float | None:
    if not numbers.rendered:
        return None
    match name:
        case "max-avoidable-tokens":
            return numbers.avoidable
        case "max-reprefill-ratio":
            return round(numbers.reprefill / numbers.prompt_tokens, 6)
        case "min-divergence-depth":
            return numbers.depth
        case _:
            assert predictor is not None  # asked for by GateSettings
            return round(predictor.total(numbers.prefills), 6)
