"""What a policy is: a server's rewriting of a request before its chat template sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from ..conversation import Message, Request
from ..errors import RenderError, RenderLimit
from ..templates.rendering import Profile
from ..templates.template import ChatTemplate

ActionKind = Literal[
    "kept",
    "hoisted",
    "noted",
    "merged",
    "dropped",
    "relocated",
    "refused",
    "probed",
    "unsupported",
    "converted",
    "inserted",
    "retried",
    "kwargs",
]
Messages = tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that a policy did.

    Attributes:
        kind: what was done. `refused`: no message can carry the run as a note. `unsupported`: the run stands
            where the server does not try the template, or the server cannot do what the request asks for.
            `probed`: the server tried the template. `converted`: a message of another dialect, or in another
            form, was written as chat templates want it. `inserted`: the server added a message of its own.
            `retried`: the server rendered again, differently, after an error. `kwargs`: the server set or
            dropped chat-template kwargs.
        messages: the client's indices of the messages it was done to.
        why: one clause for people.
    """

    kind: ActionKind
    messages: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Retry:
    """A second attempt of a server whose template raised.

    Attributes:
        request: what it renders then.
        action: what it changed, for people.
        kind: only after an error of this class name; None for any.
        text: only after an error whose message contains this.
        retries: what the server tries next where this attempt raises, in order.
        final: whether an error of this attempt is what the server answers; else the first attempt's is.
    """

    request: Request
    action: Action
    kind: str | None = None
    text: str = ""
    retries: tuple[Retry, ...] = ()
    final: bool = False

    def follows(self, error: RenderError) -> bool:
        """Tell whether the server makes this attempt after `error`."""
        return self.kind in (None, error.kind) and self.text in error.message


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the template will get, and what was done to get there.

    Attributes:
        request: the rewritten request in OpenAI chat form; its messages keep their provenance.
        actions: in the order in which they were done.
        retries: what the server tries next where its template raises, in order.
        profile: what this server's renderer gives a template besides the messages (docs/rendering.md).
        error: what the server answers instead of rendering, where it does not take such a request.
    """

    request: Request
    actions: tuple[Action, ...] = ()
    retries: tuple[Retry, ...] = ()
    profile: Profile = "transformers"
    error: RenderError | None = None

    def then(self, step: Callable[[Messages], Rewrite]) -> Prepared:
        """Return what a further step makes of the messages, with the actions of both."""
        after = step(self.request.messages)
        request = self.request.replace(messages=after.messages)
        return replace(self, request=request, actions=self.actions + after.actions)

    def refused(self, status: int, why: str) -> Prepared:
        """Return the same for a server that answers with an HTTP error; the first such error counts."""
        return self if self.error else replace(self, error=RenderError(f"HTTP {status}", why))


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


class Policy(Protocol):
    """A named server's rule. Policies hold no state between requests, except caches that the server keeps."""

    @property
    def name(self) -> str:
        """The policy as the person named it, options included."""
        ...

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return what the server's template would get for `request`. Never mutates it, never raises."""
        ...


def render_prepared(prepared: Prepared, template: ChatTemplate) -> tuple[str, Prepared]:
    """Render what a policy prepared, with the server's retries.

    Returns:
        The prompt, and what was prepared for the attempt that gave it.

    Raises:
        RenderError: where no retry renders, the error that the server answers; or what it answers instead.
    """
    if prepared.error is not None:
        raise prepared.error
    try:
        return template.render_request(prepared.request, profile=prepared.profile), prepared
    except RenderLimit:
        raise
    except RenderError as error:
        for retry in prepared.retries:
            if retry.follows(error):
                actions = (*prepared.actions, retry.action)
                again = replace(prepared, request=retry.request, actions=actions, retries=retry.retries)
                try:
                    return render_prepared(again, template)
                except RenderError:
                    if retry.final:
                        raise
        raise
