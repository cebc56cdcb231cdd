"""Causes on the server's side: what its policy moved, hung elsewhere or merged."""

from __future__ import annotations

from collections.abc import Iterator

from ..attribution.ownership import Owner
from ..conversation import SYSTEM_ROLES, TOP_LEVEL
from ..policies.registry import kind_of, parse_policy
from .base import CandidateRemedy, Cause, Counterfactual, PromptPair, PromptSide, without
from .client import setting_offers
from .settings import other_policies

_IN_PLACE = "an in-place template"
_JOINS_NONE = "a server that joins no turns"
_IN_PLACE_UNASKED = "an in-place template, on a server that always leaves system turns to it"


def rewritten_by_policy(pair: PromptPair) -> Iterator[Cause]:
    """The policy built or moved the message where the prompts diverge; without its doing they do so later.

    Without its doing: under `as-is`, or where that raises or loses as much, without the system messages that
    the later request brings anew, without what the policy put into the message, without the message, without
    every system turn that it treats otherwise than before, or without all that is new.
    """
    for side, owner in ((pair.later, pair.owner), (pair.earlier, pair.earlier_owner)):
        if owner.index is None or not _touched(side, owner):
            continue
        new = [each for each in pair.news if pair.later.client.role_of(each) in SYSTEM_ROLES]
        trial = (
            _under(pair, "as-is")
            or _without(pair, new)
            or _without(pair, _carried(pair))
            or _without_either(pair, owner.index)
            or _without_flipped(pair, new)
            or (_without(pair, list(pair.news)) if side.done_to(owner.index, *_MOVED) else None)
        )
        if trial is not None:
            id, evidence = _label(pair, side, owner.index, owner.rendered_index)
            yield Cause(id, True, evidence, trial, tuple(_offers(pair, trial, joins=id == "role-merged")))
            return


def _touched(side: PromptSide, owner: Owner) -> bool:
    """Tell whether a policy built or moved the message that owns a character."""
    index = owner.index
    if owner.rendered_index is None or index is None:
        return False
    if side.rendered.messages[owner.rendered_index].origins != (index,):
        return True
    if any(index in action.messages and action.kind not in _HARMLESS for action in side.actions):
        return True
    before = [each.index for each in side.rendered.messages[: owner.rendered_index]]
    # What a server never writes, such as items of reasoning, is not moved.
    written = {origin for each in side.rendered.messages for origin in each.origins}
    return any(each > index for each in before) or bool(written & set(range(index)) - set(before))


_MOVED = ("hoisted", "noted", "relocated")
_HARMLESS = frozenset({"kept", "probed", "converted", "kwargs"})


def _under(pair: PromptPair, policy: str) -> Counterfactual | None:
    """Return the pair under another policy, where less of the earlier prompt is lost then."""
    if pair.policy.name == policy or not _converts_alike(pair, policy):
        return None
    trial = pair.trial(policy=parse_policy(policy))
    return trial if pair.resolves(trial) else None


def _converts_alike(pair: PromptPair, policy: str) -> bool:
    """Tell whether another policy brings a request into chat form as the pair's own one does.

    Chat messages need no conversion. That of other dialects is the same for all bare policies, and for one
    server whatever its settings.
    """
    if pair.later.client.dialect == "openai-chat":
        return True
    kind = kind_of(pair.policy.name)
    return kind is not None and (kind.generic or any(own.policy == policy for own in kind.remedies))


def _without(pair: PromptPair, indices: list[int]) -> Counterfactual | None:
    if not indices:
        return None
    trial = pair.trial(later=without(pair.later.client, indices))
    return trial if pair.resolves(trial) else None


def _carried(pair: PromptPair) -> list[int]:
    """Return the new messages whose text the policy put into the owning one."""
    if pair.owner.rendered_index is None:
        return []
    message = pair.later.rendered.messages[pair.owner.rendered_index]
    return [index for index in message.origins if index in pair.news]


def _without_either(pair: PromptPair, index: int) -> Counterfactual | None:
    """Return the pair without a system turn that both requests have."""
    if index in pair.news or index == TOP_LEVEL or pair.later.client.role_of(index) not in SYSTEM_ROLES:
        return None
    trial = pair.trial(without(pair.earlier.client, [index]), without(pair.later.client, [index]))
    return trial if trial is not None and trial.is_prefix else None


def _without_flipped(pair: PromptPair, new: list[int]) -> Counterfactual | None:
    """Return the pair without the system turns, old and new, that the policy treats otherwise than before.

    A run that cannot stay a note turns all of them into hoists, also those whose own place did not change.
    """
    flipped = [
        message.index
        for message in pair.earlier.client.messages
        if message.data.get("role") in SYSTEM_ROLES
        and any(
            pair.earlier.done_to(message.index, kind) != pair.later.done_to(message.index, kind)
            for kind in _MOVED
        )
    ]
    if not flipped:
        return None
    trial = pair.trial(without(pair.earlier.client, flipped), without(pair.later.client, [*flipped, *new]))
    return trial if trial is not None and (trial.is_prefix or pair.resolves(trial)) else None


def _label(pair: PromptPair, side: PromptSide, index: int, rendered_index: int | None) -> tuple[str, str]:
    """Name what the policy did to the message where the prompts diverge."""
    name, role = pair.policy.name, side.client.role_of(index)
    message = f"message {index} ({role})"
    was_noted, noted = pair.earlier.done_to(index, "noted"), pair.later.done_to(index, "noted")
    joined = _joined_turns(side, rendered_index)
    if (was_noted or noted) and not (joined and index in pair.news):
        if index in pair.news:
            return "note-neighbour-flip", f"{name} wrote {message} as a note into an earlier message"
        before = f"as a note in {_host(pair.earlier, index)}" if was_noted else "elsewhere"
        now = f"as a note in {_host(pair.later, index)}" if noted else "into the first system block"
        if was_noted and not noted and (refused := _refused(pair.later)):
            now += f", because {refused}"
        return (
            "note-neighbour-flip",
            f"{name} wrote {message} {before} in the earlier request and {now} in this one",
        )
    if side.done_to(index, "hoisted") and role in SYSTEM_ROLES:
        return "system-hoisted", f"{name} moved {message} into the first system block"
    if side.done_to(index, "relocated"):
        return "system-hoisted", f"{name} moved {message} before the turn that precedes it"
    with_ = (
        f"message{'s' if len(joined) > 1 else ''} {', '.join(map(str, joined))}" if joined else "a neighbour"
    )
    return "role-merged", f"{name} merged {message} with {with_} in one of the two requests only"


def _refused(side: PromptSide) -> str | None:
    """Say which run the policy could not keep as a note, and why."""
    for action in side.actions:
        if action.kind == "refused":
            return f"no note can carry message {', '.join(map(str, action.messages))} ({action.why})"
    return None


def _joined_turns(side: PromptSide, rendered_index: int | None) -> list[int]:
    """Return the turns, other than system turns, that the policy joined into one message."""
    if rendered_index is None:
        return []
    origins = side.rendered.messages[rendered_index].origins
    turns = [each for each in origins if side.client.role_of(each) not in SYSTEM_ROLES]
    return turns if len(turns) > 1 else []


def _host(side: PromptSide, index: int) -> str:
    """Name the turn that carries a note."""
    for message in side.rendered.messages:
        if index in message.origins:
            turns = [each for each in message.origins if side.client.role_of(each) not in SYSTEM_ROLES]
            if turns:
                return f"message {turns[0]}"
    return "a turn of its own"


def _offers(pair: PromptPair, trial: Counterfactual, joins: bool) -> Iterator[CandidateRemedy]:
    """Yield what would stop it: the client's own setting, the server's, another policy, the template.

    Args:
        pair: the prompts.
        trial: what proved the policy's doing.
        joins: whether that was to join turns, which no template keeps apart.
    """
    yield from setting_offers(pair)
    policies = []
    for other in other_policies(pair.policy.name):
        done = _under(pair, other.policy)
        if done is not None:
            policies.append(
                CandidateRemedy("policy", other.set, done, other.paste, apply=(f"policy:{other.policy}",))
            )
    yield from sorted(
        policies, key=lambda offer: (offer.paste is None, not offer.trial.is_prefix, offer.trial.lost)
    )[:2]
    if trial.policy is not pair.policy:
        return
    if joins:
        yield CandidateRemedy("policy", _JOINS_NONE, trial, adds=pair.left_out(trial))
    else:
        # Where the server rewrites a placement without trying the template, no template helps on that server.
        untried = any(action.kind == "unsupported" for action in pair.later.actions)
        set_ = _IN_PLACE_UNASKED if untried else _IN_PLACE
        yield CandidateRemedy("template", set_, trial, adds=pair.left_out(trial))


RULES = (rewritten_by_policy,)
