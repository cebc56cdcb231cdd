"""Two prompts of one conversation that part, and the counterfactual renders that prove why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from ..conversation import Message, Request
from ..errors import RenderError
from ..ownership import Owner
from ..policies.base import Action, Policy, Prepared, render_prepared
from ..rendering import Profile
from ..template import ChatTemplate
from ..tokens import common_prefix

if TYPE_CHECKING:
    from ..divergence import Prompt

RemedyKind = Literal["kwarg", "policy", "client", "template", "tokenizer", "none"]


@dataclass(frozen=True, slots=True)
class Side:
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


@dataclass(frozen=True, slots=True)
class Trial:
    """A counterfactual: the pair once more, with one thing undone.

    Attributes:
        earlier: the earlier prompt then.
        later: the later prompt then.
        chars: characters that both share then.
        whole: whether the earlier prompt without its generation prompt is then a prefix of the later one.
        policy: the policy that made both.
    """

    earlier: Side
    later: Side
    chars: int
    whole: bool
    policy: Policy


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a prompt parts from an earlier one.

    Attributes:
        id: an id of docs/causes.md.
        confirmed: whether a counterfactual render proved it.
        evidence: one sentence for people.
        set: what to set or do, ready to paste where that can be; None where nothing helps.
        kind: what the remedy is a setting of.
        trial: the counterfactual that proved it.
    """

    id: str
    confirmed: bool
    evidence: str
    set: str | None = None
    kind: RemedyKind = "none"
    trial: Trial | None = None


Rule = Callable[["Pair"], Iterator[Cause]]


@dataclass(frozen=True)
class Pair:
    """An earlier and a later prompt, and the character where they part.

    Attributes:
        earlier: the earlier prompt.
        later: the later prompt.
        policy: the policy that both went through.
        template: what rendered them.
        chars: characters that both share.
        owner: owner of the first differing character of the later prompt.
        was: owner of the first differing character of the earlier prompt.
    """

    earlier: Side
    later: Side
    policy: Policy
    template: ChatTemplate
    chars: int
    owner: Owner
    was: Owner
    _rendered: dict[tuple[int, int], Side | None] = field(default_factory=dict, repr=False)

    @cached_property
    def news(self) -> range:
        """Indices of the later request's messages behind the earlier one's last."""
        return range(len(self.earlier.client.messages), len(self.later.client.messages))

    def trial(
        self,
        earlier: Request | None = None,
        later: Request | None = None,
        policy: Policy | None = None,
    ) -> Trial | None:
        """Render the pair again, with other requests or another policy; None where that raises."""
        policy = policy or self.policy
        first = self._side(earlier or self.earlier.client, policy, self.earlier)
        second = self._side(later or self.later.client, policy, self.later)
        if first is None or second is None:
            return None
        chars = common_prefix(first.text, second.text)
        return Trial(first, second, chars, self._whole(first, second, chars), policy)

    def cured(self, trial: Trial | None) -> bool:
        """Tell whether the divergence is later in a trial than it is, or gone."""
        return trial is not None and (trial.whole or trial.chars > self.chars)

    def _whole(self, first: Side, second: Side, chars: int) -> bool:
        if chars == len(first.text):
            return True
        try:
            body = self.template.render_request(
                first.rendered, add_generation_prompt=False, profile=first.profile
            )
        except RenderError:
            return False
        return second.text.startswith(body)

    def _side(self, request: Request, policy: Policy, own: Side) -> Side | None:
        if request is own.client and policy is self.policy:
            return own
        return render_side(request, policy, self.template)


def render_side(request: Request, policy: Policy, template: ChatTemplate) -> Side | None:
    """Send a request through a policy and render it; None where the template raises."""
    prepared: Prepared = policy.prepare(request, template)
    try:
        text, prepared = render_prepared(prepared, template)
    except RenderError:
        return None
    return Side(request, prepared.request, text, prepared.actions, prepared.profile)


def side_of(prompt: Prompt, actions: tuple[Action, ...]) -> Side:
    """Return a replayed prompt as a side of a pair."""
    return Side(prompt.client, prompt.rendered, prompt.text, actions, prompt.profile)


def without(request: Request, indices: set[int]) -> Request:
    """Return a request without some of its messages. The others keep the indices that they had."""
    kept = tuple(message for index, message in enumerate(request.messages) if index not in indices)
    return request.replace(messages=kept)


def with_message(request: Request, index: int, message: Message) -> Request:
    """Return a request with one message replaced by another one, which takes its index."""
    messages = list(request.messages)
    messages[index] = replace(message, index=index)
    return request.replace(messages=tuple(messages))
