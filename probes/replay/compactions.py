"""Compactions: a conversation begun anew with a summary. The client's choice, told with its price."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ..causes.changes import as_written
from ..conversation import SYSTEM_ROLES, Request
from ..findings import RULES, Confidence
from .replay_report import PolicyReport, ReplayFinding

_RULE = "compaction"
_NAME = re.compile(r"compaction of (\d+)")


def compaction_findings(policy: PolicyReport, requests: Mapping[int, Request]) -> Iterator[ReplayFinding]:
    """Yield what each compaction prefilled again, and what its client dropped that could have been shared.

    Args:
        policy: the turns, and the conversations that they belong to.
        requests: the requests by turn.
    """
    turns = {turn.turn: turn for turn in policy.turns}
    of = {conversation.conversation: conversation for conversation in policy.conversations}
    for conversation in policy.conversations:
        named = _NAME.match(conversation.name or "")
        if named is None or int(named[1]) not in of:
            continue
        first = turns[conversation.turns[0]]
        before = [turn for turn in of[int(named[1])].turns if turn < first.turn]
        if not before or first.reprefill is None:
            continue
        dropped = _dropped(requests[before[-1]], requests[first.turn])
        said = f"turn {first.turn} goes on from a summary of conversation {named[1]} and prefills "
        said += f"{first.reprefill:,} of {first.prompt_tokens:,} tokens"
        if dropped:
            said += f"; the client no longer sends {dropped}, whose tokens could have been reused"
        row = RULES[_RULE]
        confidence: Confidence = "likely" if conversation.guessed else "confirmed"
        yield ReplayFinding(
            _RULE,
            row.severity,
            confidence,
            said,
            None,
            0,
            row.help,
            policy.policy,
            (first.turn,),
            first.reprefill,
        )


def _dropped(before: Request, after: Request) -> str:
    """Name what a compaction does not send any more, or sends otherwise."""
    found = []
    if as_written(before.tools) != as_written(after.tools):
        found.append(f"its {len(before.tools or ())} tools" if not after.tools else "the same tools")
    if as_written(_system(before)) != as_written(_system(after)):
        found.append("the same system text")
    return " and ".join(found)


def _system(request: Request) -> list[object]:
    leading: list[object] = [request.system]
    for message in request.messages:
        if message.data.get("role") not in SYSTEM_ROLES:
            break
        leading.append(message.data.get("content"))
    return leading
