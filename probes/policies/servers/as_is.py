"""The policy of a server that passes messages on: the template decides alone.

A request of another dialect is written as chat messages first, in the plainest way (`plain_chat`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...conversation import Request
from ...templates.template import ChatTemplate
from ..api.plain_chat import plain_chat
from ..base import Prepared
from ..kind import PolicyKind
from ..rewrite.system_turns import keep


@dataclass(frozen=True, slots=True)
class AsIs:
    """Passes every message on as the client sent it."""

    name: str

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return the request itself, in chat form."""
        return plain_chat(request).then(lambda messages: keep(messages, "passed on as it is"))


KINDS = (
    PolicyKind(
        "as-is",
        "passes messages on unchanged; the template decides",
        lambda name, options: AsIs(name),
        source="no server: the request itself",
        date="2026-11",
        evidence={"messages": "run"},
        cache="paged:256",
        drift="None of its own: what was sent before stays what it was.",
        generic=True,
        suite="plain",
    ),
)
