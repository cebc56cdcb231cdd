"""Causes on the server's side: what its policy moved, hung elsewhere or merged."""

from __future__ import annotations

from collections.abc import Iterator

from ..conversation import SYSTEM_ROLES
from ..policies import parse_policy
from .base import Cause, Pair, Side, Trial, without


def rewritten_by_policy(pair: Pair) -> Iterator[Cause]:
    """The policy built or moved the owning message, and without its doing the prompts part later.

    Without its doing: under `as-is`, or where that raises or parts at the same place, without the system
    messages that the later request brings anew.
    """
    index = pair.owner.index
    if index is None or not _touched(pair.later, index, pair.owner.rendered_index):
        return
    trial = _undone(pair)
    if trial is None:
        return
    yield _label(pair, index, trial)


def _touched(side: Side, index: int, rendered_index: int | None) -> bool:
    """Tell whether a policy built or moved the message that the template saw at `rendered_index`."""
    if rendered_index is None:
        return False
    message = side.rendered.messages[rendered_index]
    if len(message.origins) > 1 or message.origins != (index,):
        return True
    if any(index in action.messages and action.kind != "kept" for action in side.actions):
        return True
    before = [each.index for each in side.rendered.messages[:rendered_index]]
    return any(each > index for each in before) or set(range(index)) - set(before) != set()


def _undone(pair: Pair) -> Trial | None:
    trial = pair.trial(policy=parse_policy("as-is"))
    if pair.cured(trial):
        return trial
    new = {index for index in pair.news if pair.later.client.messages[index].data.get("role") in SYSTEM_ROLES}
    if new:
        trial = pair.trial(later=without(pair.later.client, new))
        if pair.cured(trial):
            return trial
    return None


def _label(pair: Pair, index: int, trial: Trial) -> Cause:
    role = pair.later.client.role_of(index)
    was_noted = _done(pair.earlier, "noted", index)
    noted = _done(pair.later, "noted", index)
    hoisted = _done(pair.later, "hoisted", index)
    name = pair.policy.name
    if was_noted or noted:
        now = "as a note in another message" if noted else "in the first system block"
        before = "as a note" if was_noted else "elsewhere" if index not in pair.news else "not at all"
        return Cause(
            "note-neighbour-flip",
            True,
            f"{name} wrote message {index} ({role}) {before} in the earlier request and {now} in this one",
            _IN_PLACE,
            "policy",
            trial,
        )
    if hoisted and role in SYSTEM_ROLES:
        return Cause(
            "system-hoisted",
            True,
            f"{name} moved message {index} ({role}) into the first system block",
            _IN_PLACE,
            "policy",
            trial,
        )
    return Cause(
        "role-merged",
        True,
        f"{name} merged message {index} ({role}) with a neighbour in one of the two requests only",
        _IN_PLACE,
        "policy",
        trial,
    )


def _done(side: Side, kind: str, index: int) -> bool:
    return any(action.kind == kind and index in action.messages for action in side.actions)


_IN_PLACE = "a server setting or template that leaves later system turns in place"

RULES = (rewritten_by_policy,)
