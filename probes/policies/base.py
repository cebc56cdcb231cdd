"""What a policy is: a server's rewriting of a request before its chat template sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from ..conversation import Message, Request

if TYPE_CHECKING:  # the template brings Jinja, which listing the policies does without
    from ..template import ChatTemplate

ActionKind = Literal[
    "kept", "hoisted", "noted", "merged", "dropped", "relocated", "refused", "probed", "unsupported"
]
Messages = tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that a policy did.

    Attributes:
        kind: what was done. `refused`: no message can carry the run as a note. `unsupported`: the run stands
            where the server does not try the template. `probed`: the server tried the template.
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


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The result of one step on the way from a request's messages to the template's.

    Attributes:
        messages: the messages after the step.
        actions: what the step, and the steps before it, did.
    """

    messages: Messages
    actions: tuple[Action, ...] = ()

    def then(self, step: Callable[[Messages], Rewrite]) -> Rewrite:
        """Return the result of a further step, with the actions of both."""
        after = step(self.messages)
        return Rewrite(after.messages, self.actions + after.actions)

    def of(self, request: Request) -> Prepared:
        """Return `request` with these messages, and the actions that led to them."""
        return Prepared(request.replace(messages=self.messages), self.actions)


class Policy(Protocol):
    """A named server's rule. Policies hold no state between requests, except caches that the server keeps."""

    @property
    def name(self) -> str:
        """The policy as the person named it, options included."""
        ...

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return what the server's template would get for `request`. Never mutates it, never raises."""
        ...


@dataclass(frozen=True, slots=True)
class PolicyKind:
    """A policy that a person can name.

    Attributes:
        name: the name, without options.
        summary: one clause for lists.
        make: returns the policy, given the name as the person wrote it and the options.
        options: the options that it knows and, for each, the values.
    """

    name: str
    summary: str
    make: Callable[[str, Mapping[str, str]], Policy]
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
