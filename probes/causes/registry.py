"""Why two prompts part: hypotheses in a fixed order, each proved by a counterfactual render.

See docs/causes.md. A policy's doing comes first, then the client's, then the template's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from . import client, policy, template
from .base import CandidateRemedy, Cause, Counterfactual, PromptPair, PromptSide, render_side

__all__ = [
    "DEEPEST",
    "CandidateRemedy",
    "Cause",
    "Counterfactual",
    "Link",
    "PromptPair",
    "PromptSide",
    "chain",
    "explain",
    "render_side",
]

RULES = (*policy.RULES, *client.RULES, *template.RULES)
#: Most causes of one divergence that are looked for, one behind the other.
DEEPEST = 5

UNKNOWN = Cause("other", False, "none of the known causes was proved")


@dataclass(frozen=True, slots=True)
class Link:
    """One cause of a chain: where the prompts part while the causes before it are undone."""

    pair: PromptPair
    cause: Cause


def explain(pair: PromptPair) -> Cause:
    """Find why a pair parts where it does.

    The first hypothesis that a counterfactual confirms; else the first that could not be tried, as likely.
    """
    likely: Cause | None = None
    for rule in RULES:
        for cause in rule(pair):
            if cause.confirmed:
                return cause
            likely = likely or cause
    return likely or UNKNOWN


def chain(pair: PromptPair, first: Cause) -> Iterator[Link]:
    """Yield the causes of a divergence: the first, and what parts the prompts once it is undone.

    It ends where the rest is unavoidable, where nothing is proved, and after DEEPEST causes.
    """
    cause = first
    for _ in range(DEEPEST):
        yield Link(pair, cause)
        trial = cause.trial
        if trial is None or trial.is_prefix:
            return
        pair = _following(pair, trial)
        cause = explain(pair)


def _following(pair: PromptPair, trial: Counterfactual) -> PromptPair:
    """Return what a trial left as the next pair."""
    owner, was = (pair.owner_of(side, trial.chars) for side in (trial.later, trial.earlier))
    return PromptPair(trial.earlier, trial.later, trial.policy, pair.template, trial.chars, owner, was)
