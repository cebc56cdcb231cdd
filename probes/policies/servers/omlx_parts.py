"""One of oMLX's rules alone, without its probe, its relocation hook and its routes.

A request of another dialect is written as chat messages first, in the plainest way (`plain_chat`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...conversation import Request
from ..api.plain_chat import plain_chat
from ..base import Messages, Policy, PolicyKind, Prepared, Rewrite
from ..rewrite.preparation import rewritten
from ..rewrite.role_merge import merge_roles

if TYPE_CHECKING:
    from ...templates.template import ChatTemplate


@dataclass(frozen=True, slots=True)
class OmlxPart:
    """Applies one rule to the messages.

    Attributes:
        name: the policy as the person named it.
        rule: the rule.
        merge: join neighbouring turns of one role afterwards.
    """

    name: str
    rule: Callable[[Messages], Rewrite]
    merge: bool = False

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return the request as the rule makes it."""
        chat = plain_chat(request)
        rewrite = self.rule(chat.request.messages)
        return rewritten(chat, rewrite.then(merge_roles) if self.merge else rewrite)


def kinds(
    name: str, rule: Callable[[Messages], Rewrite], summary: str, drift: str
) -> tuple[PolicyKind, PolicyKind]:
    """Return a rule's two policies: by itself, and `NAME+merge`, which then joins neighbouring turns."""

    def kind(full_name: str, summary: str, merge: bool) -> PolicyKind:
        def make(given: str, options: Mapping[str, str]) -> Policy:
            return OmlxPart(given, rule, merge)

        return PolicyKind(
            full_name,
            summary,
            make,
            source="jundot/omlx 0.5.3 (commit d5084907)",
            date="2026-07-23",
            evidence="run",
            cache="paged:256",
            drift=drift,
        )

    joined = f"{name}, then joins neighbouring turns of one role"
    return kind(name, summary, False), kind(f"{name}+merge", joined, True)
