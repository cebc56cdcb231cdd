"""The gate's report: one value that every output prints from, and whose JSON form is `tplaudit.gate/1`.

The field names are the JSON names, but for `passed` of a budget, which is `pass` there, and `subject` of a
check, which is `name`; subjects are texts. docs/gate.md explains them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ... import __version__
from ..documents import plain, several
from ..findings import SEVERITIES, Severity
from .compare.compare import Check
from .compare.differences import KINDS, Kind
from .subject import Subject

SCHEMA = "tplaudit.gate/1"
Against = Literal["template", "signature"]
Outcome = Literal["regressed", "changed", "fixed", "cosmetic", "unchanged", "nothing-checked"]


@dataclass(frozen=True, slots=True)
class Change:
    """What became different, equal differences put together.

    Attributes:
        kind: what it means.
        rule: id of the rule that it is about.
        where: the placements or conversations, in words.
        base: what it was; None where there was nothing.
        head: what it is.
        message: one sentence without a full stop.
        severity: how bad it is; None for what is good or does not matter.
        line: line of the head's template that is responsible, where known.
        subjects: the placements or conversations.
        diff: how one of the prompts changed, as lines of a diff.
        accepted: why it does not count, where somebody agreed to it.
        fingerprint: the same for the same change, whatever line it stands on.
    """

    kind: Kind
    rule: str
    where: str
    base: str | None
    head: str | None
    message: str
    severity: Severity | None
    line: int | None
    subjects: tuple[Subject, ...]
    diff: tuple[str, ...]
    accepted: str | None
    fingerprint: str


@dataclass(frozen=True, slots=True)
class BudgetResult:
    """One budget for one transcript under one policy.

    Attributes:
        name: the budget.
        policy: as the person named it.
        transcript: likewise.
        limit: as it was written, such as `1000` or `base+5%`.
        allowed: the number that it came to; None where the base gave none.
        base: the number with the base's template; None where there is none.
        head: the number with the head's template.
        passed: whether it was kept.
        reason: why not, or what the numbers are.
        accepted: why it does not count, where somebody agreed to it.
        error: root mean square error of the head's number where that is predicted; None where it is counted
            or its error is not known.
    """

    name: str
    policy: str
    transcript: str
    limit: str
    allowed: float | None = None
    base: float | None = None
    head: float | None = None
    passed: bool = False
    reason: str = ""
    accepted: str | None = None
    error: float | None = None


@dataclass(frozen=True, slots=True)
class GateSide:
    """One of the two that were compared: what the person named, and the hash of each named template."""

    source: str
    sha256: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReport:
    """What a change of a template does.

    Attributes:
        schema: name and version of this form.
        tplaudit: version of the program.
        verdict: whether the gate lets it pass.
        outcome: the worst kind of change, accepted ones included; `unchanged` where there is none.
        base: what was before.
        head: what is now.
        path: file of the head's template for annotations; None where there is no such file.
        changes: the worst first.
        budgets: every budget for every transcript and policy.
        checks: what was compared, and how many renders or verdicts of it.
        notes: what a reader has to know, such as an engine that is not installed.
        warnings: entries that match nothing, or have expired.
        against: whether the base is a template, or the signature of one.
        allow: what `--allow` has to say so that no changed prompt lets the gate fail; nothing where none
            does, or where the base is a signature.
    """

    schema: str = SCHEMA
    tplaudit: str = __version__
    verdict: Literal["pass", "fail"]
    outcome: Outcome
    base: GateSide
    head: GateSide
    path: str | None
    changes: tuple[Change, ...] = ()
    budgets: tuple[BudgetResult, ...] = ()
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    against: Against = "template"
    allow: tuple[str, ...] = ()

    @property
    def compared(self) -> int:
        """How many renders and verdicts were compared."""
        return sum(check.compared for check in self.checks)

    def failing(self) -> tuple[Change, ...]:
        """Return the changes because of which the gate fails."""
        return tuple(change for change in self.changes if change.severity == "error" and not change.accepted)


def outcome(changes: Sequence[Change], compared: int) -> Outcome:
    """Return the worst kind of change."""
    if not compared:
        return "nothing-checked"
    found = {change.kind for change in changes}
    return next((kind for kind in KINDS if kind in found), "unchanged")


def severities(
    changes: Sequence[Change], budgets: Sequence[BudgetResult], warnings: Sequence[str]
) -> frozenset[Severity]:
    """Return the severities of all that was found."""
    found: set[Severity] = {"warning"} if warnings else set()
    for change in changes:
        if change.severity is not None:
            found.add("note" if change.accepted else change.severity)
    for budget in budgets:
        if not budget.passed:
            found.add("note" if budget.accepted else "error")
    return frozenset(found)


def fails(found: frozenset[Severity], least: Severity | Literal["never"]) -> bool:
    """Return whether anything was found that is at least as severe as `least`."""
    return least != "never" and any(SEVERITIES.index(each) <= SEVERITIES.index(least) for each in found)


def to_json(report: GateReport) -> dict[str, Any]:
    """Return the report as plain JSON types."""
    document = plain(report)
    for change, written in zip(report.changes, document["changes"], strict=True):
        written["subjects"] = list(map(str, change.subjects))
    document["budgets"] = [
        {"pass" if key == "passed" else key: item for key, item in budget.items()}
        for budget in document["budgets"]
    ]
    document["checks"] = [{"name": str(check.subject), "compared": check.compared} for check in report.checks]
    return document


def document(reports: Sequence[GateReport]) -> dict[str, Any]:
    """Return the report on one template, or those on several as one document."""
    if len(reports) == 1:
        return to_json(reports[0])
    failed = any(report.verdict == "fail" for report in reports)
    return several(SCHEMA, map(to_json, reports), verdict="fail" if failed else "pass")
