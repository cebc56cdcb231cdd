"""One of oMLX's rules alone, without its probe, its relocation hook and its routes.

A request of another dialect is written as chat messages first, in the plainest way (`plain_chat`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...conversation import Request
from ..api.plain_chat import plain_chat
from ..base import Messages, Policy, Prepared, Rewrite
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
        done = plain_chat(request).then(self.rule)
        return done.then(merge_roles) if self.merge else done


def maker(
    rule: Callable[[Messages], Rewrite], *, merge: bool = False
) -> Callable[[str, Mapping[str, str]], Policy]:
    """Return what makes a policy of a rule, for `PolicyKind.make`."""

    def make(name: str, options: Mapping[str, str]) -> Policy:
        return OmlxPart(name, rule, merge)

    return make
