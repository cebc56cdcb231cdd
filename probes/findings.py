"""Findings: what an audit has to say about a template, under ids that do not change.

Every rule is one row of `RULES` and one section of docs/findings.md. A finding says how bad it is
(severity) and how sure (confidence): `confirmed` where a render showed it, `likely` where only a source
text hints at it.

An ignore file has findings that somebody has looked at and accepted, each with the reason.

A TOML file with one table per acceptance::

    [[ignore]]
    rule = "system-raises"
    reason = "served only behind a server that moves system turns to the front"
    source = "models/strict*"     # optional: a shell pattern for what was probed
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal

from .errors import InputError
from .files import read_toml

Severity = Literal["error", "warning", "note"]
Confidence = Literal["confirmed", "likely"]

#: From worst to least.
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Rule:
    """What an audit looks for.

    Attributes:
        id: stable; used in output, ignore files and docs.
        severity: of its findings, where they do not say otherwise.
        title: what it is, one sentence without a full stop.
        help: what a person can do, one sentence without a full stop.
    """

    id: str
    severity: Severity
    title: str
    help: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding about one template.

    Attributes:
        rule: id of the rule.
        severity: how bad it is.
        confidence: how sure it is.
        message: what was found, one sentence without a full stop.
        line: line of the template source that it is about, counted from 1, where known.
        placements: how many placements of the probe's matrix show it; 0 where it is not about placements.
        help: what a person can do, one sentence without a full stop.
    """

    rule: str
    severity: Severity
    confidence: Confidence
    message: str
    line: int | None
    placements: int
    help: str


_ROWS = (
    Rule(
        "system-raises",
        "error",
        "The template raises an error when a system turn is not the first message",
        "Use a server that moves system turns to the front or writes them as notes, or edit the template to "
        "write them in place",
    ),
    Rule(
        "system-dropped",
        "error",
        "The template silently leaves out a later system turn: the model never sees it",
        "Edit the template to write every system turn, or use a server that notices this and moves the text",
    ),
    Rule(
        "system-moved",
        "warning",
        "The template writes a later system turn at another place, which changes the prompt from there on",
        "Edit the template to write system turns in place, or send reminders within user turns",
    ),
    Rule(
        "system-duplicated",
        "warning",
        "The template writes a later system turn more than once",
        "Edit the template to write each system turn once",
    ),
    Rule(
        "system-unstable",
        "warning",
        "The template writes a later system turn in place, but changes the prompt before it",
        "Look at the line: what the template writes for earlier turns must not depend on later ones",
    ),
    Rule(
        "system-not-evaluated",
        "note",
        "Some placements could not be tested, because the conversation before them does not render",
        "Nothing is known about such a placement; look at the reason",
    ),
    Rule(
        "tool-boundary-only",
        "warning",
        "System turns are treated worse after a tool result than after a user turn",
        "Agents send reminders there: edit the template's tool branch, or send them within user turns",
    ),
    Rule(
        "developer-role",
        "warning",
        "A later developer turn is treated worse than a system turn at the same place",
        "Send role system instead, or use a server that renames developer to system",
    ),
    Rule(
        "probe-false-positive",
        "error",
        "A server's own probe accepts the template although it does not write system turns in place",
        "Configure that server to move system turns to the front, or edit the template",
    ),
    Rule(
        "probe-false-negative",
        "warning",
        "A server's own probe rejects the template although it writes system turns in place",
        "The server rewrites system turns needlessly; declare the capability there if there is a setting",
    ),
    Rule(
        "call-id-rejected",
        "warning",
        "The template rejects the tool-call ids of oMLX's probe, and the probe fails for that reason alone",
        "Relax the template's check of ids; ids of real clients may fail it as well",
    ),
    Rule(
        "thinking-mention-without-effect",
        "warning",
        "The template names a history-reasoning variable that changes nothing",
        "Do not rely on the variable; servers that look only for its name will enable what the template "
        "does not do",
    ),
    Rule(
        "thinking-knob-missed",
        "warning",
        "The template can keep earlier reasoning, by a variable that servers do not look for",
        "Set that variable among the chat-template kwargs",
    ),
    Rule(
        "history-stripped-without-knob",
        "warning",
        "The template drops earlier reasoning at the next user turn, and no variable stops it",
        "Expect every user turn to recompute everything after the last one, or edit the template",
    ),
    Rule(
        "generation-prompt-not-in-history",
        "note",
        "The generation prompt begins a reply with text that is not in front of that reply in history",
        "Each turn recomputes from the last reply on; edit the template to write both the same way",
    ),
    Rule(
        "template-clock",
        "warning",
        "The template prints the date or time, so the prompt changes although no message did",
        "Fix the date by a chat-template kwarg if the template has one, or write it after the history",
    ),
    Rule(
        "string-arguments-raise",
        "warning",
        "The template raises when a tool call's arguments are a JSON string, as OpenAI's API sends them",
        "Use a server that parses them first, or edit the template to accept both",
    ),
    Rule(
        "parts-list-repr",
        "warning",
        "The template prints Python's notation of a list where a message's content is a list of text parts",
        "Send plain strings, use a server that flattens parts, or edit the template",
    ),
    Rule(
        "token-ids-depend-on-loading",
        "warning",
        "The same text becomes other token ids depending on how the model directory is loaded",
        "Add the model's own config.json with its model_type",
    ),
    Rule(
        "depth-within-leading-block",
        "warning",
        "The shared prefix stays within the first message, where system turns go, while prompts grow",
        "Use a server or template that leaves later system turns in place, or have the client send none",
    ),
    Rule(
        "volatile-text",
        "warning",
        "A short piece of an earlier message changes from request to request",
        "Keep clocks, counters and hashes out of earlier messages; several clients have a setting for it",
    ),
    Rule(
        "notes-change-place",
        "warning",
        "The server writes the same system turn into one turn at first and into another later",
        "Use a server or template that leaves later system turns in place",
    ),
    Rule(
        "history-stripped",
        "warning",
        "The template drops the reasoning of earlier turns as the conversation goes on",
        "Set the chat-template kwarg that keeps it, where there is one",
    ),
    Rule(
        "tools-come-and-go",
        "warning",
        "The client sends another tool list, or the same one written differently, in mid-conversation",
        "Send the same tools in the same order and the same form in every request",
    ),
    Rule(
        "client-rewrites-history",
        "warning",
        "The client changed, removed, inserted or moved messages that it had sent before",
        "Neither server nor template can help; let the client compact less often, and all at once",
    ),
    Rule(
        "heads-share-less",
        "warning",
        "Conversations that begin with the same tools and system text share much less of their prompts",
        "Keep what changes behind the system text; use a server or template that writes it and tools first",
    ),
    Rule(
        "client-drops-reasoning",
        "warning",
        "The client does not send reasoning back, so history differs from what was generated",
        "Let the client send reasoning_content with every assistant turn",
    ),
    Rule(
        "compaction",
        "note",
        "The client began its conversation anew from a summary, and the prompt was computed again",
        "Where the client lets you choose, compact less often, and with the same tools and system text",
    ),
    Rule(
        "block-rests",
        "note",
        "Prompts share parts of blocks, which a cache of whole blocks cannot reuse",
        "Use smaller blocks, where the server lets you choose",
    ),
)

#: All rules by id, in the order in which lists show them.
RULES: dict[str, Rule] = {rule.id: rule for rule in _ROWS}


def finding(
    rule: str,
    message: str,
    *,
    confidence: Confidence = "confirmed",
    severity: Severity | None = None,
    line: int | None = None,
    placements: int = 0,
    help: str | None = None,
) -> Finding:
    """Return a finding, with the rule's own severity and help where none are given."""
    row = RULES[rule]
    return Finding(rule, severity or row.severity, confidence, message, line, placements, help or row.help)


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings: the worst first, then as `RULES` lists them, then by line."""
    rank = {rule: number for number, rule in enumerate(RULES)}
    return tuple(
        sorted(findings, key=lambda each: (SEVERITIES.index(each.severity), rank[each.rule], each.line or 0))
    )


def reaches(findings: Iterable[Finding], least: Severity | Literal["never"]) -> bool:
    """Tell whether any finding is at least as severe as `least`."""
    if least == "never":
        return False
    return any(SEVERITIES.index(each.severity) <= SEVERITIES.index(least) for each in findings)


def documentation(rule: str) -> str:
    """Return the section of docs/findings.md about a rule, as Markdown."""
    text = (Path(__file__).parent.parent / "docs" / "findings.md").read_text(encoding="utf-8")
    _, _, rest = text.partition(f"\n## {rule}\n")
    return f"# {rule}\n{rest.partition(chr(10) + '## ')[0].rstrip()}\n"


def cause_documentation(cause: str) -> str | None:
    """Return what docs/causes.md says of a cause, as Markdown; None where it knows no such cause."""
    text = (Path(__file__).parent.parent / "docs" / "causes.md").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith(f"| `{cause}` |"):
            when, counterfactual = (cell.strip(" |") for cell in line.split(" | ")[1:3])
            return f"# {cause}\n\nIt is this when {when}.\n\nProved by rendering again: {counterfactual}.\n"
    return None


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
    document = read_toml(path, "see docs/findings.md")
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
