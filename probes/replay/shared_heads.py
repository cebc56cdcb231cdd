"""Conversations that begin alike and share less of their prompts than they could: the price, and whose."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..attribution.prompt import Prompt
from ..attribution.text_spans import find_texts
from ..conversation import SYSTEM_ROLES, Request, written_alike
from ..findings import RULES
from ..transcripts.grouping.message_keys import nearly_equal, texts_of
from .replay_report import PolicyReport, ReplayFinding

_RULE = "heads-share-less"
#: Share of two heads below which they share much less than they could, and the fewest tokens that count.
_MUCH_LESS, _FEWEST = 0.5, 64


@dataclass(frozen=True, slots=True)
class Head:
    """The prompt of a request that begins a conversation, up to the first text that is no system text.

    Attributes:
        turn: the request.
        tokens: how many tokens stand before that text.
        shared: for earlier ones, by turn, the tokens that both prompts share.
    """

    turn: int
    tokens: int
    shared: Mapping[int, int]


def head_chars(prompt: Prompt) -> int:
    """Return where in a prompt the first text stands that is no system text; 0 where none is found."""
    spans = find_texts(prompt.text, prompt.rendered.messages)
    starts = (span.start for span in spans if prompt.client.role_of(span.message) not in SYSTEM_ROLES)
    return min(starts, default=0)


def shared_head_findings(
    policy: PolicyReport, heads: Sequence[Head], requests: Mapping[int, Request]
) -> Iterator[ReplayFinding]:
    """Yield what conversations prefill that begin like earlier ones and do not share it.

    Args:
        policy: the turns.
        heads: the first prompts of the conversations, in the order of the replay.
        requests: the requests by turn.
    """
    turns = {turn.turn: turn for turn in policy.turns}
    tokens = {head.turn: head.tokens for head in heads}
    found: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for head in heads:
        alike = [turn for turn in head.shared if _whose(requests[turn], requests[head.turn])]
        if not alike:
            continue
        near = max(alike, key=lambda turn: head.shared[turn])
        could = min(head.tokens, tokens[near])
        lost = min(could - head.shared[near], turns[head.turn].reprefill or 0)
        if head.shared[near] < _MUCH_LESS * could and lost >= _FEWEST:
            found[_whose(requests[near], requests[head.turn]) or ""].append((head.turn, near, lost))
    for whose, pairs in found.items():
        turn, near, _ = pairs[0]
        lost = sum(tokens for *_, tokens in pairs)
        row = RULES[_RULE]
        said = (
            f"{_counted(len(pairs))} with the same tools and {_TEXTS[whose]} as an earlier one, such as turn "
            f"{turn} and turn {near}, and the prompts share less than half of that: {lost:,} tokens are "
            f"prefilled that could have been reused; {_FAULTS[whose]}"
        )
        numbers = tuple(turn for turn, *_ in pairs)
        yield ReplayFinding(
            _RULE, row.severity, "confirmed", said, None, 0, row.help, policy.policy, numbers, lost
        )


_TEXTS = {"server": "system text", "client": "nearly the same system text"}
_FAULTS = {
    "server": "the requests are alike, so the server or the template writes them differently",
    "client": "the client writes a few characters differently near the beginning",
}


def _counted(conversations: int) -> str:
    return "1 conversation begins" if conversations == 1 else f"{conversations} conversations begin"


def _whose(one: Request, other: Request) -> str | None:
    """Return who makes two requests' prompts differ at their heads; None where they have other heads."""
    if not written_alike(one.tools, other.tools):
        return None
    first, second = _system(one), _system(other)
    if not (first or one.tools):
        return None
    if first == second:
        return "server"
    return "client" if nearly_equal(first, second) else None


def _system(request: Request) -> str:
    """Return a request's leading system text, as sent."""
    texts = [*texts_of({"content": request.system})]
    for message in request.messages:
        if message.data.get("role") not in SYSTEM_ROLES:
            break
        texts += texts_of(message.data)
    return "\n".join(texts)
