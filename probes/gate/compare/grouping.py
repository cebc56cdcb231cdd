"""Putting equal differences together, so that a report has one entry for one cause."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...findings import Severity
from ...placements.findings import where_text
from ..allowances import Allowance, KnownFailure, allowing
from ..report import Change
from ..rules import GATE_RULES
from ..subject import Subject
from .differences import KINDS, Difference
from .edits import Pair

_SEVERITY: Mapping[str, Severity] = {"regressed": "error", "changed": "error"}
#: Edits of one change that its message quotes.
_QUOTED = 3
_LONGEST_QUOTE = 60
#: Conversations that `where` names one by one.
_NAMED = 4


@dataclass(frozen=True, slots=True)
class _Accepted:
    """A difference, and why it does not count where it does not."""

    difference: Difference
    reason: str | None


def changes(
    differences: Sequence[Difference],
    allowances: Sequence[Allowance],
    known: Sequence[KnownFailure],
    used: set[Allowance | KnownFailure],
) -> tuple[Change, ...]:
    """Put differences together, the worst first."""
    groups: dict[Hashable, list[_Accepted]] = {}
    edited: list[_Accepted] = []
    for difference in differences:
        entry = _Accepted(difference, _reason(difference, allowances, known, used))
        if difference.edit is not None:
            edited.append(entry)
            continue
        error = difference.detail if difference.rule == "prompt-raises" else None
        alike = (difference.subject.view, difference.base, difference.head, error)
        groups.setdefault((difference.kind, difference.rule, entry.reason, alike), []).append(entry)
    merged = [*_edits(edited), *(_change(group) for group in groups.values())]
    rank = {rule: number for number, rule in enumerate(GATE_RULES)}
    return tuple(
        sorted(
            merged,
            key=lambda each: (
                KINDS.index(each.kind),
                rank[each.rule],
                -len(each.subjects),
                tuple(map(str, each.subjects)),
            ),
        )
    )


def _reason(
    difference: Difference,
    allowances: Sequence[Allowance],
    known: Sequence[KnownFailure],
    used: set[Allowance | KnownFailure],
) -> str | None:
    if difference.kind == "changed":
        allowance = allowing(allowances, difference.rule, difference.subject)
        if allowance is not None:
            used.add(allowance)
            return f"allowed by {allowance.text}"
    if difference.kind in _SEVERITY:
        entry = next((each for each in known if each.covers(difference.rule, difference.subject)), None)
        if entry is not None:
            used.add(entry)
            return entry.reason
    return None


def _edits(entries: Sequence[_Accepted]) -> Iterator[Change]:
    """Yield one change for each set of edits that always come together.

    A prompt may have several edits of different causes. An edit that stands in the same prompts as another
    belongs to the same change.
    """
    holders: dict[tuple[str, str, str | None, Pair], list[_Accepted]] = {}
    for entry in entries:
        difference = entry.difference
        for pair in _pairs(entry):
            holders.setdefault((difference.kind, difference.rule, entry.reason, pair), []).append(entry)
    together: dict[Hashable, tuple[list[_Accepted], list[Pair]]] = {}
    for (kind, rule, reason, pair), group in holders.items():
        key = (kind, rule, reason, tuple(id(entry) for entry in group))
        together.setdefault(key, (group, []))[1].append(pair)
    for group, pairs in together.values():
        clearest = min(group, key=lambda entry: len(_pairs(entry)))
        yield _change([clearest, *(entry for entry in group if entry is not clearest)], pairs)


def _pairs(entry: _Accepted) -> tuple[Pair, ...]:
    return entry.difference.edit.pairs if entry.difference.edit is not None else ()


def _change(group: Sequence[_Accepted], pairs: Sequence[Pair] = ()) -> Change:
    first = group[0].difference
    subjects = tuple(dict.fromkeys(entry.difference.subject for entry in group))
    where = _where([entry.difference for entry in group])
    base, head = pairs[0] if pairs else (first.base, first.head)
    # The line of a prompt's difference is that of its first edit.
    relevant = [entry for entry in group if not pairs or _pairs(entry)[0] in pairs]
    lines = [entry.difference.line for entry in relevant if entry.difference.line is not None]
    return Change(
        kind=first.kind,
        rule=first.rule,
        where=where,
        base=base,
        head=head,
        message=_message(first, where, pairs),
        severity=_SEVERITY.get(first.kind),
        line=max(lines, key=lines.count) if lines else None,
        subjects=subjects,
        diff=_diff(first, pairs),
        accepted=group[0].reason,
        fingerprint=_fingerprint(first, subjects, base, head),
    )


def _diff(first: Difference, pairs: Sequence[Pair]) -> tuple[str, ...]:
    if first.edit is None:
        return ()
    hunks = [first.edit.hunks[pair] for pair in pairs[:_QUOTED]]
    return tuple(line for hunk in hunks for line in (" …", *hunk))[1:]


def _fingerprint(first: Difference, subjects: Sequence[Subject], base: str | None, head: str | None) -> str:
    """Hash what a change is about: neither lines nor the words of messages."""
    checks = sorted({str(subject.usual) for subject in subjects})
    text = "\0".join((first.kind, first.rule, base or "", head or "", *checks))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _where(group: Sequence[Difference]) -> str:
    view = group[0].subject.view
    named = f", in the template named {view}" if view else ""
    variants = dict.fromkeys(each.subject.variant for each in group)
    rows = [each.row for each in group if each.row is not None]
    if rows:
        roles = {row.role for row in rows}
        which = f", {roles.pop()} turns only" if len(roles) == 1 else ""
        switched = "" if "" in variants else f", with {' or '.join(variants)}"
        return f"{where_text(rows)}{which}{switched}{named}"
    places = list(dict.fromkeys(replace(each.subject, variant="", view="") for each in group))
    under = group[0].subject.group == "replay"
    only = [f"under {name}" if under else _in_words(name) for name in variants]
    suffix = "" if "" in variants else f" {' or '.join(only)}"
    if len(places) <= _NAMED:
        return f"{', '.join(map(_shown, places))}{suffix}{named}"
    counts = Counter(subject.group for subject in places)
    return f"{', '.join(f'{name}/* ({count})' for name, count in counts.items())}{suffix}{named}"


def _shown(subject: Subject) -> str:
    """Leave out the group where the rule says it already."""
    return subject.name if subject.group in ("thinking", "findings", "templates") else subject.place


def _in_words(variant: str) -> str:
    return {
        "raw": "with messages passed on as given",
        "llama.cpp": "in llama.cpp",
        "omlx": "under oMLX",
        "on": "with thinking switched on",
        "off": "with thinking switched off",
        "given": "with the kwargs as given",
    }.get(variant, f"with {variant}")


_DOES = {
    "in-place": "written in place",
    "unstable": "written in place while the prompt before it changes",
    "moved": "written at another place",
    "duplicated": "written more than once",
    "dropped": "left out",
    "raises": "answered with an error",
    "not-evaluated": "beyond testing, for the conversation before it does not render",
}


def _message(first: Difference, where: str, pairs: Sequence[Pair]) -> str:
    base, head = first.base, first.head
    detail = f": {first.detail.removesuffix('.')}" if first.detail else ""
    if first.row is not None:
        was, now = _DOES[str(base)], _DOES[str(head)]
        return f"a later system turn was {was} and is now {now}, {where}{detail}"
    match first.rule:
        case "prompt-changed":
            return f"the prompt changed in {where}{_quoted(pairs)}"
        case "generation-prompt":
            what = "is gone" if first.kind == "regressed" else "changed"
            return f"the generation prompt {what} in {where}{_quoted(pairs)}"
        case "prompt-raises":
            what = "raises now" if head == "raises" else "raised before and renders now"
            if "not-evaluated" in (base, head):
                what = (
                    "is not evaluated now" if head == "not-evaluated" else "was not evaluated and renders now"
                )
            return f"the template {what} on {where}{detail}"
        case "text-lost" if head == "lost":
            was = "raised an error and now silently leaves" if base == "raises" else "now leaves"
            return f"the template {was} the text of a message out of the prompt of {where}{detail}"
        case "text-lost":
            return f"the text of a message that was missing is written now in {where}{detail}"
        case "text-moved":
            return f"the texts of the messages stand {head} now in {where}"
        case "history-rewritten" if head == "rewritten":
            return f"the earlier part of the prompt now changes in {where}{detail and f' {first.detail}'}"
        case "history-rewritten":
            return f"the earlier part of the prompt now stays as it was in {where}"
        case "reasoning-history":
            return f"the reasoning of earlier turns: was {base}, is now {head}, given as {where}"
        case "named-template":
            what = "is missing" if head == "missing" else "is new"
            return f"the named template {first.subject.name} {what}"
        case "engines-differ" if head == "differ":
            return f"llama.cpp's engine now writes another prompt than transformers' Jinja in {where}"
        case "engines-differ":
            return f"llama.cpp's engine now writes the same prompt as transformers' Jinja in {where}"
        case "replay-raises":
            return f"requests that fail: {base} before, {head} now, in {where}{detail}"
        case "replay-avoidable":
            return f"avoidable tokens (counted): {base} before, {head} now, in {where}{detail}"
        case "text-only":
            return "the template's text changed, and no prompt or verdict did"
        case rule:
            title = GATE_RULES[rule].title
            state = "found now" if head not in ("absent", "stays") else "no longer found"
            about = "" if where == rule else f", for {where}"
            return f"{state}{about}: {title[0].lower()}{title[1:]}"


def _quoted(pairs: Sequence[Pair]) -> str:
    quotes = [f"{_quote(removed)} became {_quote(added)}" for removed, added in pairs[:_QUOTED]]
    if len(pairs) > _QUOTED:
        quotes.append(f"{len(pairs) - _QUOTED} more edits")
    return f": {'; '.join(quotes)}" if quotes else ""


def _quote(text: str) -> str:
    if not text:
        return "nothing"
    return repr(text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…")
