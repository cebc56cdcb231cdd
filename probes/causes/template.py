"""Causes in the template: what it writes differently although the client only appended."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from ..attribution.ownership import Owner
from ..conversation import SYSTEM_ROLES, TOP_LEVEL, Message, Request
from ..errors import RenderError
from ..templates.source import TemplateSource
from ..templates.switches import switches
from ..text import common_prefix
from .base import (
    CandidateRemedy,
    Cause,
    Counterfactual,
    PromptPair,
    PromptSide,
    json_value,
    render_side,
    with_messages,
    without,
)
from .changes import flat_text
from .reasoning import is_reasoning_item, without_reasoning
from .settings import kwarg_line

#: Kwargs that known templates keep history reasoning with, and the value that does it.
KNOBS: dict[str, bool] = {
    "preserve_thinking": True,
    "keep_past_thinking": True,
    "preserved_thinking": True,
    "clear_thinking": False,
    "drop_thinking": False,
    "truncate_history_thinking": False,
}
#: Further switches that are tried, by what stands in their names.
_ABOUT_HISTORY = (
    "history",
    "past",
    "previous",
    "preserve",
    "keep",
    "clear",
    "drop",
    "truncate",
    "strip",
    "retain",
)
KEEPS = "a template that keeps earlier reasoning"
_ALIKE = "a template that writes the last message like others"
_CLOCK = "strftime_now"
_PINNED = datetime(2026, 1, 1)


def clock(pair: PromptPair) -> Iterator[Cause]:
    """The template prints the date or time."""
    before, after = pair.earlier.client, pair.later.client
    if _CLOCK not in pair.template.choose(pair.later.rendered.tools).text:
        return
    pinned = before.now or pair.template.now or _PINNED
    trial = pair.trial(before.replace(now=pinned), after.replace(now=pinned))
    if trial is not None and pair.resolves(trial):
        said = "the template prints the date or time, which moved on between the requests"
        offer = CandidateRemedy("template", "a template without a clock", trial)
        yield Cause("template-clock", True, said, trial, (offer,))


def thinking_stripped(pair: PromptPair) -> Iterator[Cause]:
    """The template writes less, or more, of an earlier turn's reasoning or think block than before."""
    owners = (pair.earlier_owner, pair.owner)
    index = next((each.index for each in owners if each.role == "assistant" or _reasons(pair, each)), None)
    if index is None:
        return
    said = f"the template no longer writes the reasoning of message {index} as it did before"
    knob = _knob(pair)
    if knob is not None:
        yield Cause("thinking-stripped", True, said, knob.trial, (knob,))
        return
    proofs = [_without_its_reasoning(pair, index)]
    if _writes_thinking(pair):
        proofs.append(_without_new_users(pair))
    proved = [trial for trial in proofs if trial is not None and pair.resolves(trial)]
    if proved:
        # The last one leaves the earlier prompt as it was: it tells what keeping the reasoning is worth.
        offer = CandidateRemedy("template", KEEPS, proved[-1], adds=pair.left_out(proved[-1]))
        yield Cause("thinking-stripped", True, said, proved[-1], (offer,))


def _reasons(pair: PromptPair, owner: Owner) -> bool:
    """Tell whether the owner of a text is an item of reasoning, which has no role."""
    message = None if owner.index is None else pair.earlier.client.message(owner.index)
    return message is not None and is_reasoning_item(message)


def moved_system(pair: PromptPair) -> Iterator[Cause]:
    """The template itself writes a system text elsewhere than it stands, or elsewhere than before."""
    for owner in (pair.owner, pair.earlier_owner):
        if owner.role not in SYSTEM_ROLES or owner.index is None:
            continue
        leading = owner.index < 1
        if leading and not _at_another_place(pair, owner.index):
            continue
        earlier = _without_system(pair.earlier.client, owner.index) if owner.index not in pair.news else None
        trial = pair.trial(earlier, _without_system(pair.later.client, owner.index))
        if trial is not None and pair.resolves(trial):
            what = "the top-level system text" if owner.index == TOP_LEVEL else f"message {owner.index}"
            where = (
                "at another place than before, now that turns were added"
                if owner.index not in pair.news
                else "before messages that precede it"
            )
            said = f"the template writes {what} ({owner.role}) {where}"
            offer = CandidateRemedy("template", "an in-place template", trial, adds=pair.left_out(trial))
            yield Cause("template-moved-system", True, said, trial, (offer,))
            return


def _at_another_place(pair: PromptPair, index: int) -> bool:
    """Tell whether a leading system text stands at different offsets of the two prompts."""
    message = pair.later.client.message(index)
    text = flat_text(message.content if message else pair.later.client.system) or ""
    line = max(text.splitlines(), key=len, default="").strip()
    return bool(line) and pair.earlier.text.find(line) != pair.later.text.find(line)


def _without_system(request: Request, index: int) -> Request:
    return request.replace(system=None) if index == TOP_LEVEL else without(request, [index])


def position_dependent(pair: PromptPair) -> Iterator[Cause]:
    """The template writes a message differently because it is no longer last, or the tools elsewhere."""
    if pair.later.client.tools:
        trial = pair.trial(pair.earlier.client.replace(tools=None), pair.later.client.replace(tools=None))
        if trial is not None and pair.resolves(trial):
            said = "the template writes the tool list at another place than before"
            offers = _counted(pair, "a template with the tools first")
            yield Cause("position-dependent-markup", True, said, trial, offers)
            return
    what = (
        f"message {pair.earlier_owner.index} ({pair.earlier_owner.role})"
        if pair.earlier_owner.index is not None
        else "earlier text"
    )
    said = f"the template writes {what} differently once other messages follow"
    for successor in _neutral_successors(pair):
        trial = pair.trial(later=_appended(pair.earlier.client, successor))
        if trial is not None and not trial.is_prefix and trial.chars == pair.chars:
            offers = _counted(pair, _ALIKE)
            yield Cause("position-dependent-markup", True, said, offers[0].trial if offers else None, offers)
            return
    trial = pair.trial(_trimmed(pair.earlier.client), _trimmed(pair.later.client))
    if trial is not None and pair.resolves(trial):
        yield Cause("position-dependent-markup", True, said, trial, _counted(pair, _ALIKE))


def _knob(pair: PromptPair) -> CandidateRemedy | None:
    """Return the kwarg with which the template goes on writing reasoning, if one does it."""
    for name, value in history_switches(pair.template.choose(pair.later.rendered.tools)):
        kwargs = [{**side.client.kwargs, name: value} for side in (pair.earlier, pair.later)]
        trial = pair.trial(
            pair.earlier.client.replace(kwargs=kwargs[0]), pair.later.client.replace(kwargs=kwargs[1])
        )
        if trial is not None and pair.resolves(trial):
            said = f"{name}={json_value(value)}"
            paste = kwarg_line(pair.policy.name, name, value)
            return CandidateRemedy("kwarg", said, trial, paste, apply=(f"kwarg:{said}",))
    return None


def history_switches(source: TemplateSource) -> Iterator[tuple[str, Any]]:
    """Yield the kwargs of a template that may keep reasoning in history, known names first."""
    try:
        known = [(name, value) for name, value in KNOBS.items() if name in source.undeclared]
        others = switches(source)
    except RenderError:
        return
    yield from known
    for name, values in others.items():
        if name not in KNOBS and any(word in name.lower() for word in _ABOUT_HISTORY):
            yield from ((name, value) for value in values if isinstance(value, bool))


def _without_its_reasoning(pair: PromptPair, index: int) -> Counterfactual | None:
    """Return the pair with the earlier request lacking the reasoning, or empty think block, in question."""
    message = next((each for each in pair.earlier.client.messages if each.index == index), None)
    stripped = without_reasoning(message) if message else None
    return pair.trial(earlier=with_messages(pair.earlier.client, {index: stripped})) if stripped else None


def _writes_thinking(pair: PromptPair) -> bool:
    around = slice(max(0, pair.chars - 24), pair.chars + 24)
    return any("think" in side.text[around].lower() for side in (pair.earlier, pair.later))


def _without_new_users(pair: PromptPair) -> Counterfactual | None:
    users = [index for index in pair.news if pair.later.client.role_of(index) == "user"]
    return pair.trial(later=without(pair.later.client, users)) if users else None


def _counted(pair: PromptPair, set: str) -> tuple[CandidateRemedy, ...]:
    """Return an offer whose trial has the earlier request go on with the later one's next turn.

    Then both write the turns before it alike: what they share is what such a template would keep.
    """
    after = pair.later.client.messages
    start = len(pair.earlier.client.messages)
    for end in range(start + 1, min(start + 4, len(after)) + 1):
        going_on = pair.earlier.client.replace(messages=(*pair.earlier.client.messages, *after[start:end]))
        trial = pair.trial(earlier=going_on)
        if trial is not None and pair.resolves(trial):
            within = _as_if_followed(pair, pair.earlier, after[start].data.get("role"))
            alike = _as_if_followed(pair, pair.later, "assistant")
            adds = (pair.later.text, alike) if alike is not None else None
            return (CandidateRemedy("template", set, trial, within=within or pair.earlier.text, adds=adds),)
    return ()


def _as_if_followed(pair: PromptPair, side: PromptSide, role: object) -> str | None:
    """Return a prompt as the template writes its messages where another one follows.

    It ends as the prompt does: what two successors with other texts have in common is their header, and what
    the generation prompt has behind that is added. None where it cannot be told.
    """
    texts = [_with_successor(pair, side, {"role": role, "content": each}) for each in ("ok", "no")]
    if role not in ("user", "assistant") or None in texts:
        return None
    one, other = (text or "" for text in texts)
    shared = one[: common_prefix(one, other)]
    if role == "user":
        return shared
    try:
        body = pair.template.render_request(side.rendered, add_generation_prompt=False, profile=side.profile)
    except RenderError:
        return None
    if not side.text.startswith(body):
        return None
    opening = side.text[len(body) :]
    known = next(length for length in range(len(opening), -1, -1) if shared.endswith(opening[:length]))
    return shared + opening[known:]


def _with_successor(pair: PromptPair, side: PromptSide, message: dict[str, Any]) -> str | None:
    followed = render_side(_appended(side.client, message), pair.policy, pair.template)
    return followed.text if followed else None


def _neutral_successors(pair: PromptPair) -> list[dict[str, Any]]:
    """Return messages that a conversation can go on with and that carry no text of its own."""
    reply = {"role": "assistant", "content": "ok"}
    user = {"role": "user", "content": "ok"}
    function = {"name": "ok", "arguments": {}}
    calls = [{"id": "call00000", "type": "function", "function": function}]
    calling = {"role": "assistant", "content": "", "tool_calls": calls}
    last = pair.earlier.client.messages[-1].data.get("role") if pair.earlier.client.messages else None
    return [user] if last == "assistant" else [reply, user, calling]


def _appended(request: Request, message: dict[str, Any]) -> Request:
    return request.replace(messages=(*request.messages, Message(message, len(request.messages))))


def _trimmed(request: Request) -> Request:
    return request.replace(
        messages=tuple(
            message.replace(content=message.content.strip()) if isinstance(message.content, str) else message
            for message in request.messages
        )
    )


RULES = (clock, thinking_stripped, moved_system, position_dependent)
