"""The findings that follow from the placement matrix and from how servers judge it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from ..findings import Finding, Severity, finding
from ..text import settings_text
from .mid_system import PlacementReport
from .placements import destination, in_words, listed
from .server_detection import ServerReport
from .verdicts import Verdict, worse

_MESSAGES: dict[Verdict, str] = {
    "raises": "a later system turn raises",
    "dropped": "a later system turn is left out",
    "moved": "a later system turn is written {where}, not at its own place,",
    "duplicated": "a later system turn is written more than once",
    "unstable": "a later system turn is written in place, but the prompt before it changes",
    "not-evaluated": "no verdict",
}
#: The rule that a verdict on a system turn stands for; none for a good one.
RULE_OF_VERDICT: dict[Verdict, str] = {verdict: f"system-{verdict}" for verdict in _MESSAGES}
T = TypeVar("T")

#: What the template does with the turn, for sentences.
_DOES: dict[Verdict, str] = {
    "in-place": "writes it in place",
    "unstable": "writes it in place and changes the prompt before it",
    "moved": "writes it {where}",
    "duplicated": "writes it more than once",
    "dropped": "leaves it out",
    "raises": "raises an error",
    "not-evaluated": "could not be tested",
}


def placement_findings(placements: Sequence[PlacementReport]) -> Iterator[Finding]:
    """Yield the findings about a placement matrix."""
    usual = [row for row in placements if row.unswitched]
    system = [row for row in usual if row.role == "system"]
    yield from _by_verdict(_informative(system), "")
    yield from _tool_boundary(system)
    yield from _developer(usual)
    for suffix, rows in _variants(placements).items():
        plain = {_key(row): row for row in usual}
        worsened = [
            row for row in rows if row.role == "system" and worse(row.verdict, plain[_key(row)].verdict)
        ]
        yield from _by_verdict(worsened, suffix)


def server_findings(
    servers: Sequence[ServerReport], placements: Sequence[PlacementReport]
) -> Iterator[Finding]:
    """Yield the findings about what servers conclude."""
    rows = [row for row in placements if row.role == "system" and row.shape == "plain" and not row.kwargs]
    for server in servers:
        if server.false_positives:
            worsened_rows = [
                row for row in rows if row.pair in server.false_positives and worse(row.verdict, "unstable")
            ]
            worst = max(worsened_rows, key=_badness)
            message = (
                f"{server.policy} concludes that the template writes system turns in place, "
                f"but {_pairs(server.false_positives)} the template {_does(worst)}"
            )
            severity: Severity = "error" if worst.verdict in ("raises", "dropped") else "warning"
            yield finding(
                "probe-false-positive",
                message,
                severity=severity,
                line=worst.line,
                placements=len(worsened_rows),
            )
        if server.false_negatives and not server.rejected_ids:
            message = (
                f"{server.policy} rewrites system turns {_pairs(server.false_negatives)}, although the "
                f"template writes them in place ({server.why})"
            )
            yield finding("probe-false-negative", message, placements=len(server.false_negatives))
    rejecting = [server for server in servers if server.rejected_ids]
    if rejecting:
        names = listed([server.policy for server in rejecting])
        message = (
            f"the probe of {names} fails only because of the probe's call id "
            f"{rejecting[0].rejected_ids[0]}; with an id of nine letters and digits it passes"
        )
        yield finding("call-id-rejected", message)


def _informative(system: Sequence[PlacementReport]) -> list[PlacementReport]:
    """Leave out what could not be evaluated only because an earlier system turn of the same kind raises."""
    raising = {(row.preceding, row.placement) for row in system if row.verdict == "raises"}
    return [
        row
        for row in system
        if row.verdict != "not-evaluated"
        or row.shape == "plain"
        or (row.preceding, row.placement) not in raising
    ]


def _by_verdict(rows: Sequence[PlacementReport], suffix: str) -> Iterator[Finding]:
    for verdict, what in _MESSAGES.items():
        found = [row for row in rows if row.verdict == verdict]
        if not found:
            continue
        where = destination(row.moved_to for row in found)
        message = f"{what.format(where=where)} {where_text(found)}{suffix}"
        error = _most_common(row.error for row in found)
        if error:
            message += f": {error}"
        harmless = verdict == "unstable" and all(row.successor_moves for row in found)
        if harmless:
            message += "; the next turn changes that even without the system turn"
        yield finding(
            RULE_OF_VERDICT[verdict],
            message,
            severity="note" if harmless else None,
            line=_most_common(row.line for row in found),
            placements=len(found),
        )


def _tool_boundary(system: Sequence[PlacementReport]) -> Iterator[Finding]:
    """Compare each placement after a tool result with the same one after a user turn."""
    plain = [row for row in system if row.shape == "plain" and row.tools]
    users = {(row.placement, row.leading): row for row in plain if row.preceding == "user"}
    tools = [row for row in plain if row.preceding == "tool"]
    worsened_rows = [row for row in tools if worse(row.verdict, users[row.placement, row.leading].verdict)]
    if worsened_rows and all(row.verdict == "in-place" for row in users.values()):
        worst = max(worsened_rows, key=_badness)
        message = (
            "after a user turn the template writes a system turn in place, "
            f"after a tool result it {_does(worst)}"
        )
        yield finding("tool-boundary-only", message, line=worst.line, placements=len(worsened_rows))


def _developer(usual: Sequence[PlacementReport]) -> Iterator[Finding]:
    """Compare each placement of a developer turn with the same one of a system turn."""
    system = {_place(row): row for row in usual if row.role == "system"}
    worsened_rows = [
        row for row in usual if row.role == "developer" and worse(row.verdict, system[_place(row)].verdict)
    ]
    if worsened_rows:
        worst = max(worsened_rows, key=_badness)
        message = f"a later developer turn: the template {_does(worst)}, while it treats a system turn better"
        if worst.error:
            message += f": {worst.error}"
        yield finding("developer-role", message, line=worst.line, placements=len(worsened_rows))


def _variants(placements: Sequence[PlacementReport]) -> dict[str, list[PlacementReport]]:
    """Group the rows that differ from the plain matrix by what makes them differ."""
    groups: dict[str, list[PlacementReport]] = {}
    for row in placements:
        if not row.unswitched:
            setting = settings_text(row.kwargs)
            suffix = f" with {setting}" if setting else " where messages are passed on as given"
            groups.setdefault(suffix, []).append(row)
    return groups


def _does(row: PlacementReport) -> str:
    return _DOES[row.verdict].format(where=destination([row.moved_to]))


def _place(row: PlacementReport) -> tuple[object, ...]:
    return (row.preceding, row.placement, row.leading, row.tools, row.shape)


def _key(row: PlacementReport) -> tuple[object, ...]:
    return (*_place(row), row.role)


def _badness(row: PlacementReport) -> tuple[bool, bool]:
    """Order verdicts so that the worst is the largest, raising after dropping."""
    return (worse(row.verdict, "duplicated"), worse(row.verdict, "raises"))


def where_text(rows: Sequence[PlacementReport]) -> str:
    """Say in words where some placements are, and what else they have in common."""
    conditions = _conditions(rows)
    return in_words((row.preceding, row.placement) for row in rows) + (f" {conditions}" if conditions else "")


def _conditions(rows: Sequence[PlacementReport]) -> str:
    """Say what some placements have in common, apart from where they are."""
    checks: tuple[tuple[str, Callable[[PlacementReport], bool]], ...] = (
        ("with a leading system message", lambda row: row.leading),
        ("without a leading system message", lambda row: not row.leading),
        ("with tools", lambda row: row.tools and any(each.preceding != "tool" for each in rows)),
        ("without tools", lambda row: not row.tools),
    )
    return ", ".join(text for text, holds in checks if all(map(holds, rows)))


def _pairs(pairs: Iterable[str]) -> str:
    places = (pair.partition("/") for pair in pairs)
    return in_words((preceding, placement) for preceding, _, placement in places)


def _most_common(values: Iterable[T | None]) -> T | None:
    counted = Counter(value for value in values if value is not None)
    return counted.most_common(1)[0][0] if counted else None
