"""A turn whose template raises: explained like one that diverges."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...causes.base import failure
from ...causes.raising import explain_raise
from ...conversation import Request
from ...errors import RenderError
from ...policies.base import Policy, Prepared
from ...templates.template import ChatTemplate
from ..replay_report import MessageRef, RaisedAt, Remedy


@dataclass
class RaiseExplainer:
    """Explains errors of one policy's turns. An error that comes again is explained once.

    Attributes:
        policy: the policy.
        template: the template.
    """

    policy: Policy
    template: ChatTemplate
    _known: list[tuple[str, int | None, Request, RaisedAt]] = field(default_factory=list)

    def explain(self, client: Request, prepared: Prepared, error: RenderError) -> RaisedAt:
        """Find what in a request the template raises on. Never raises."""
        for text, line, request, known in self._known:
            if (text, line) == (str(error), error.line) and _same_message(request, client, known):
                return known
        try:
            found = self._explained(client, prepared, error)
        except Exception as fault:
            return RaisedAt(error.line, None, f"the template raised{failure(fault)}")
        self._known.append((str(error), error.line, client, found))
        return found

    def _explained(self, client: Request, prepared: Prepared, error: RenderError) -> RaisedAt:
        raised = explain_raise(client, prepared, error, self.policy, self.template)
        message = None
        if raised.message is not None:
            index = raised.message.index
            message = MessageRef(index if index >= 0 else None, client.role_of(index), raised.field)
        remedies = [
            Remedy("policy", set_, 0, paste, apply=(f"policy:{name}",))
            for name, set_, paste in raised.policies
        ]
        if raised.wanted:
            remedies.append(Remedy("template", raised.wanted, 0))
        return RaisedAt(raised.line, message, raised.evidence, tuple(remedies))


def _same_message(one: Request, other: Request, known: RaisedAt) -> bool:
    """Tell whether two requests have the message in question in common."""
    if known.message is None or known.message.index is None:
        return False
    index = known.message.index
    if index >= min(len(one.messages), len(other.messages)):
        return False
    return one.messages[index].data == other.messages[index].data
