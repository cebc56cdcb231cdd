"""Why two prompts part: hypotheses in a fixed order, each proved by a counterfactual render.

See docs/causes.md. A policy's doing comes first, then the client's, then the template's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..ownership import Owner, owner_at
from ..template import ChatTemplate
from . import client, policy, template
from .base import Cause, Pair, Side, Trial

RULES = (*policy.RULES, *client.RULES, *template.RULES)
#: Most causes of one divergence that are looked for, one behind the other.
DEEPEST = 5

UNKNOWN = Cause("other", False, "none of the known causes was proved")


@dataclass(frozen=True, slots=True)
class Link:
    """One cause of a chain: where the prompts part while the causes before it are undone."""

    chars: int
    owner: Owner
    cause: Cause


def explain(pair: Pair) -> Cause:
    """Find why a pair parts where it does.

    The first hypothesis that a counterfactual confirms; else the first that holds at all, as likely.
    """
    likely: Cause | None = None
    for rule in RULES:
        for cause in rule(pair):
            if cause.confirmed:
                return cause
            likely = likely or cause
    return likely or UNKNOWN
