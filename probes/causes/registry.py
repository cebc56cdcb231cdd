"""Why two prompts diverge: hypotheses in a fixed order, each proved by a counterfactual render.

See docs/causes.md. A policy's doing comes first, then the client's, then the template's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..conversation import Message
from ..errors import RenderError
from ..text import common_prefix
from . import client, policy, template
from .base import (
    CandidateRemedy,
    Cause,
    Counterfactual,
    PromptPair,
    PromptSide,
    failure,
    owner_of,
    render_side,
)
from .generation_prompt import explain_opening, is_answered
from .stored_replies import ReplyPair, explain_reply

if TYPE_CHECKING:
    from ..attribution.ownership import Owner
    from ..policies.base import Policy
    from ..templates.template import ChatTemplate

__all__ = [
    "CandidateRemedy",
    "Cause",
    "Counterfactual",
    "Link",
    "PromptPair",
    "PromptSide",
    "StoredText",
    "chain",
    "explain",
    "render_side",
]

RULES = (*policy.RULES, *client.RULES, *template.RULES)
#: Most causes of one divergence that are looked for, one behind the other.
DEEPEST = 40


@dataclass(frozen=True, slots=True)
class StoredText:
    """A reply that is stored behind the earlier prompt.

    Attributes:
        text: what the model wrote.
        message: the reply as the transcript has it, with the index that it has in history.
        policy: what both prompts went through.
        ends: texts that end a turn, such as special tokens.
    """

    text: str
    message: Message
    policy: Policy
    ends: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Link:
    """One cause of a chain: where the prompts diverge while the causes before it are undone.

    Attributes:
        earlier: the earlier prompt then.
        reply: the reply that is stored behind it; empty where none is compared.
        later: the later prompt then.
        owner: owner of the first differing character of the later prompt.
        cause: why.
        complete: whether nothing diverges any more once it is undone.
    """

    earlier: str
    reply: str
    later: str
    owner: Owner
    cause: Cause
    complete: bool = field(default=False)


def explain(pair: PromptPair) -> Cause:
    """Find why a pair diverges where it does.

    The first hypothesis that a counterfactual confirms; else the first that could not be tried, as likely. A
    hypothesis that fails by a fault costs itself only.
    """
    likely: Cause | None = None
    failed = ""
    for rule in RULES:
        try:
            for cause in rule(pair):
                if cause.confirmed:
                    return cause
                likely = likely or cause
        except Exception as error:
            failed = failed or failure(error)
    return likely or Cause("other", False, f"none of the known causes was proved{failed}")


def chain(
    earlier: PromptSide,
    later: PromptSide,
    policy: Policy,
    template: ChatTemplate,
    stored: StoredText | None = None,
    owners: tuple[Owner, Owner] | None = None,
) -> Iterator[Link]:
    """Yield the causes of a divergence: the first, and what makes the prompts diverge once it is undone.

    It ends where the earlier prompt, and the reply stored behind it, is a prefix of the later one, where
    nothing is proved, and after DEEPEST causes.

    Args:
        earlier: the earlier prompt.
        later: the later prompt.
        policy: what both went through.
        template: what rendered them.
        stored: the reply that is stored behind the earlier prompt.
        owners: the owners of the first differing character in the later and the earlier prompt, where they
            are known.
    """
    depth = -1
    for _ in range(DEEPEST):
        link = _link(earlier, later, policy, template, stored, owners)
        if link is None:
            return
        trial = link.cause.trial
        if trial is None:
            yield link
            return
        owners = None
        earlier, later, policy = replace(trial.earlier, text=trial.prompt), trial.later, trial.policy
        if stored is not None:
            stored = replace(stored, text=trial.reply or stored.text)
        done = later.text.startswith(earlier.text + (stored.text if stored else ""))
        if stored is None and trial.is_prefix and not is_answered(earlier, later):
            done = True  # what is left is a generation prompt that nobody replied to
        yield replace(link, complete=done)
        if done or trial.chars <= depth:
            return
        depth = trial.chars


def _link(
    earlier: PromptSide,
    later: PromptSide,
    policy: Policy,
    template: ChatTemplate,
    stored: StoredText | None,
    owners: tuple[Owner, Owner] | None,
) -> Link | None:
    """Explain where two prompts diverge first; None where they do not, or where nobody replied."""
    chars = common_prefix(earlier.text, later.text)
    reply = stored.text if stored else ""
    if chars == len(earlier.text) and later.text.startswith(earlier.text + reply):
        return None
    body = chars == len(earlier.text) or later.text.startswith(_body(earlier, template))
    if body and stored is not None:
        if chars == len(earlier.text):
            chars = common_prefix(earlier.text + reply, later.text)
        chars = min(chars, len(later.text) - 1)
        owner = owners[0] if owners else owner_of(later, chars, template)
        pair = ReplyPair(
            earlier, stored.message, reply, later, stored.policy, template, chars, owner, stored.ends
        )
        return Link(earlier.text, reply, later.text, owner, explain_reply(pair))
    one, other = owners or (owner_of(later, chars, template), owner_of(earlier, chars, template))
    prompts = PromptPair(earlier, later, policy, template, chars, one, other)
    cause = explain_opening(prompts) if body else explain(prompts)
    return None if cause is None else Link(earlier.text, reply, later.text, one, cause)


def _body(side: PromptSide, template: ChatTemplate) -> str:
    try:
        return template.render_request(side.rendered, add_generation_prompt=False, profile=side.profile)
    except RenderError:
        return side.text
