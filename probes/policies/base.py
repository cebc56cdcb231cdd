"""What a policy is: a server's rewriting of a request before its chat template sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from ..conversation import Request
from ..template import ChatTemplate

ActionKind = Literal["kept", "hoisted", "noted", "merged", "dropped", "relocated", "refused", "probed"]


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that a policy did.

    Attributes:
        kind: what was done.
        messages: the client's indices of the messages it was done to.
        why: one clause for people.
    """

    kind: ActionKind
    messages: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the template will get, and what was done to get there.

    Attributes:
        request: the rewritten request; its messages keep their provenance.
        actions: in the order in which they were done.
    """

    request: Request
    actions: tuple[Action, ...] = ()


class Policy(Protocol):
    """A named server's rule. Policies hold no state between requests, except caches that the server keeps."""

    @property
    def name(self) -> str:
        """The policy as the person named it, options included."""
        ...

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return what the server's template would get for `request`. Never mutates it, never raises."""
        ...
