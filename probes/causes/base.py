"""Two prompts of one conversation that diverge, and the counterfactual renders that prove why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..attribution.ownership import Owner, owner_at
from ..conversation import Message, Request
from ..errors import RenderError
from ..policies.base import Action, Policy, render_prepared
from ..templates.rendering import Profile
from ..templates.template import ChatTemplate
from ..text import common_prefix
from .changes import flat_text

UNKNOWN_OWNER = Owner("unknown")
RemedyKind = Literal["kwarg", "policy", "client", "template", "cache"]


@dataclass(frozen=True, slots=True)
class PromptSide:
    """One prompt of a pair: what the client sent, and what became of it.

    Attributes:
        client: the request as the client sent it.
        rendered: the request as the policy made it.
        text: the prompt.
        actions: what the policy did.
        profile: what the template got besides the messages.
    """

    client: Request
    rendered: Request
    text: str
    actions: tuple[Action, ...]
    profile: Profile = "transformers"

    def done_to(self, index: int, *kinds: str) -> bool:
        """Tell whether the policy did one of these things to a message of the client's."""
        return any(action.kind in kinds and index in action.messages for action in self.actions)


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """A counterfactual: the pair once more, with one thing undone.

    Attributes:
        earlier: the earlier prompt then.
        later: the later prompt then.
        chars: characters that both share then.
        is_prefix: whether the earlier prompt without its generation prompt is then a prefix of the later one.
        policy: the policy that made both.
        reply: the stored reply with which the earlier text ends; empty where none is compared.
    """

    earlier: PromptSide
    later: PromptSide
    chars: int
    is_prefix: bool
    policy: Policy
    reply: str = ""

    @property
    def lost(self) -> int:
        """Characters of the earlier prompt behind the point where both diverge."""
        return len(self.earlier.text) - self.chars

    @property
    def prompt(self) -> str:
        """The earlier prompt, without the reply that is stored behind it."""
        return self.earlier.text[: len(self.earlier.text) - len(self.reply)]


@dataclass(frozen=True, slots=True)
class CandidateRemedy:
    """What would stop a divergence, with the counterfactual in which its tokens can be counted.

    Attributes:
        kind: what it is a setting of.
        set: what to set or do, short.
        trial: the pair with it.
        paste: a line to paste where it is to be set, where that is known.
        within: the earlier prompt as it is with the remedy, where the trial's own one goes on behind it; no
            more than it, and the reply behind it, can be won.
        adds: two texts: the prompt with the remedy has as many tokens more than the trial's, or fewer, as the
            second has more than the first. None where it is the trial's.
        apply: what to do to a whole session to try it (`sessions.Change`), in order; empty where that is not
            known.
    """

    kind: RemedyKind
    set: str
    trial: Counterfactual
    paste: str | None = None
    within: str | None = None
    adds: tuple[str, str] | None = None
    apply: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a prompt diverges from an earlier one.

    Attributes:
        id: an id of docs/causes.md.
        confirmed: whether a counterfactual render proved it.
        evidence: one sentence for people, without a full stop.
        trial: the counterfactual that proved it.
        offers: what would stop it, the most useful first.
        values: what stood there and what stands there now, for a short stretch that changes.
    """

    id: str
    confirmed: bool
    evidence: str
    trial: Counterfactual | None = None
    offers: tuple[CandidateRemedy, ...] = ()
    values: tuple[str, str] | None = None


Rule = Callable[["PromptPair"], Iterator[Cause]]


@dataclass(frozen=True, slots=True)
class PromptPair:
    """An earlier and a later prompt, and the character where they diverge.

    Attributes:
        earlier: the earlier prompt.
        later: the later prompt.
        policy: the policy that both went through.
        template: what rendered them.
        chars: characters that both share.
        owner: owner of the first differing character of the later prompt.
        earlier_owner: owner of the first differing character of the earlier prompt.
    """

    earlier: PromptSide
    later: PromptSide
    policy: Policy
    template: ChatTemplate
    chars: int
    owner: Owner
    earlier_owner: Owner

    @property
    def news(self) -> tuple[int, ...]:
        """Indices of the later request's messages behind the earlier one's last."""
        start = len(self.earlier.client.messages)
        return tuple(message.index for message in self.later.client.messages[start:])

    @property
    def lost(self) -> int:
        """Characters of the earlier prompt behind the point where both diverge."""
        return len(self.earlier.text) - self.chars

    def trial(
        self, earlier: Request | None = None, later: Request | None = None, policy: Policy | None = None
    ) -> Counterfactual | None:
        """Render the pair again, with other requests or another policy; None where that raises."""
        policy = policy or self.policy
        first = self._side(earlier or self.earlier.client, policy, self.earlier)
        second = self._side(later or self.later.client, policy, self.later)
        if first is None or second is None:
            return None
        chars = common_prefix(first.text, second.text)
        return Counterfactual(first, second, chars, self._is_prefix(first, second, chars), policy)

    def resolves(self, trial: Counterfactual | None) -> bool:
        """Tell whether the prompts diverge later in a trial than they do, or not at all.

        Another policy writes the same conversation at another length, so there less of the earlier prompt
        has to be lost, and the prompts have to diverge in another message.
        """
        if trial is None:
            return False
        if trial.is_prefix or trial.policy is self.policy:
            return trial.is_prefix or trial.chars > self.chars
        if trial.lost >= self.lost:
            return False
        owner = self.owner_of(trial.later, trial.chars)
        return (owner.region, owner.index) != (self.owner.region, self.owner.index)

    def owner_of(self, side: PromptSide, offset: int) -> Owner:
        """Return the owner of a character of a side's prompt; `unknown` where it cannot be found."""
        return owner_of(side, offset, self.template)

    def left_out(self, trial: Counterfactual) -> tuple[str, str] | None:
        """Return two texts that differ by the new messages which a trial leaves out; None where it has all.

        A remedy's own prompt has them, written where they stand. So the second text is the later prompt with
        a copy of each behind it, as a user turn: no server or template moves those.
        """
        kept = {message.index for message in trial.later.client.messages}
        missing = [index for index in self.news if index not in kept]
        if not missing:
            return None
        messages = self.later.client.messages
        copies = [
            each
            for message in messages
            for each in (message, *([message.replace(role="user")] if message.index in missing else ()))
        ]
        twice = render_side(renumbered(self.later.client, copies), self.policy, self.template)
        if twice is not None:
            return self.later.text, twice.text
        texts = [flat_text(message.content) for message in messages if message.index in missing]
        return "", "\n".join(text for text in texts if text)

    def _is_prefix(self, first: PromptSide, second: PromptSide, chars: int) -> bool:
        if chars == len(first.text):
            return True
        try:
            body = self.template.render_request(
                first.rendered, add_generation_prompt=False, profile=first.profile
            )
        except RenderError:
            return False
        return second.text.startswith(body)

    def _side(self, request: Request, policy: Policy, own: PromptSide) -> PromptSide | None:
        if request is own.client and policy is self.policy:
            return own
        return render_side(request, policy, self.template)


def owner_of(side: PromptSide, offset: int, template: ChatTemplate) -> Owner:
    """Return the owner of a character of a prompt; `unknown` where it cannot be found."""

    def body() -> str:
        try:
            return template.render_request(side.rendered, add_generation_prompt=False, profile=side.profile)
        except RenderError:
            return side.text

    try:
        return owner_at(template, side.client, side.rendered, side.text, offset, body, side.profile)
    except RenderError:
        return UNKNOWN_OWNER


def render_side(request: Request, policy: Policy, template: ChatTemplate) -> PromptSide | None:
    """Send a request through a policy and render it; None where the template raises."""
    try:
        text, prepared = render_prepared(policy.prepare(request, template), template)
    except RenderError:
        return None
    return PromptSide(request, prepared.request, text, prepared.actions, prepared.profile)


def without(request: Request, indices: Iterable[int]) -> Request:
    """Return a request without some of its messages. The others keep the indices that they had."""
    left_out = set(indices)
    return request.replace(
        messages=tuple(message for message in request.messages if message.index not in left_out)
    )


def with_messages(request: Request, changed: Mapping[int, Message]) -> Request:
    """Return a request with some messages replaced, told by their indices, which stay."""
    return request.replace(
        messages=tuple(
            replace(changed[message.index], index=message.index) if message.index in changed else message
            for message in request.messages
        )
    )


def renumbered(request: Request, messages: Iterable[Message]) -> Request:
    """Return a request with other messages, numbered anew."""
    return request.replace(
        messages=tuple(replace(message, index=index) for index, message in enumerate(messages))
    )


def json_value(value: Any) -> str:
    """Return a value as short JSON for people."""
    import json

    return json.dumps(value, ensure_ascii=False, default=str)


def failure(error: Exception) -> str:
    """Say what stopped an explanation, as a clause that goes on behind another."""
    return f" (an explanation failed: {type(error).__name__}: {error})"
