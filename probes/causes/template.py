"""Causes in the template: what it writes differently although the client only appended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..conversation import SYSTEM_ROLES, Message, Request
from ..rendering import REASONING_KEYS
from .base import Cause, Pair, Trial, with_message, without

#: Kwargs that known templates keep history reasoning with, and the value that does it.
KNOBS: dict[str, bool] = {
    "preserve_thinking": True,
    "keep_past_thinking": True,
    "preserved_thinking": True,
    "clear_thinking": False,
    "drop_thinking": False,
    "truncate_history_thinking": False,
}
_THINK = ("<think>", "</think>")


def clock(pair: Pair) -> Iterator[Cause]:
    """The template prints the date or time."""
    before, after = pair.earlier.client, pair.later.client
    if before.now != after.now:
        trial = pair.trial(later=after.replace(now=before.now))
        if pair.cured(trial):
            yield Cause(
                "template-clock",
                True,
                "the template prints the date or time, which moved on",
                "a template without strftime_now, or one that prints the day only",
                "template",
                trial,
            )


def thinking_stripped(pair: Pair) -> Iterator[Cause]:
    """The template writes less, or more, of an earlier assistant turn's reasoning or think block than before."""
    owners = [one for one in (pair.was, pair.owner) if one.region == "message" and one.role == "assistant"]
    if not owners or owners[0].index is None:
        return
    index = owners[0].index
    said = f"the template no longer writes the reasoning of message {index} as it did before"
    source = pair.template.choose(pair.later.rendered.tools)
    for name, value in KNOBS.items():
        if name in source.undeclared:
            trial = pair.trial(
                pair.earlier.client.replace(kwargs={**pair.earlier.client.kwargs, name: value}),
                pair.later.client.replace(kwargs={**pair.later.client.kwargs, name: value}),
            )
            if pair.cured(trial):
                yield Cause("thinking-stripped", True, said, f"{name}={str(value).lower()}", "kwarg", trial)
                return
    if index < len(pair.earlier.client.messages):
        stripped = _without_reasoning(pair.earlier.client, index)
        trial = pair.trial(earlier=stripped) if stripped else None
        if pair.cured(trial):
            yield Cause("thinking-stripped", True, said, _KEEPS, "template", trial)
            return
    if _writes_thinking(pair):
        trial = _without_new_users(pair)
        if pair.cured(trial):
            yield Cause("thinking-stripped", True, said, _KEEPS, "template", trial)


def moved_system(pair: Pair) -> Iterator[Cause]:
    """The template itself writes a later system text earlier."""
    for owner in (pair.owner, pair.was):
        if owner.region == "message" and owner.role in SYSTEM_ROLES and owner.index is not None:
            removed = {owner.index}
            trial = pair.trial(
                without(pair.earlier.client, removed) if owner.index not in pair.news else None,
                without(pair.later.client, removed),
            )
            if pair.cured(trial) and _out_of_place(pair, owner.index):
                yield Cause(
                    "template-moved-system",
                    True,
                    f"the template writes message {owner.index} ({owner.role}) before messages that precede it",
                    "a template that writes system turns where they stand",
                    "template",
                    trial,
                )
                return


def position_dependent(pair: Pair) -> Iterator[Cause]:
    """The template writes a message differently because it is no longer last, or the tools elsewhere."""
    said = "the template writes {} differently once other messages follow"
    what = f"message {pair.was.index} ({pair.was.role})" if pair.was.index is not None else "earlier text"
    remedy = "a template that writes a message alike whether or not it is last"
    for successor in _neutral_successors(pair):
        trial = pair.trial(later=_appended(pair.earlier.client, successor))
        if trial is not None and not trial.whole and trial.chars == pair.chars:
            yield Cause("position-dependent-markup", True, said.format(what), remedy, "template", trial)
            return
    if pair.later.client.tools:
        trial = pair.trial(pair.earlier.client.replace(tools=None), pair.later.client.replace(tools=None))
        if pair.cured(trial):
            moved = "the template writes the tool list at another place than before"
            yield Cause(
                "position-dependent-markup",
                True,
                moved,
                "a template that writes the tools first",
                "template",
                trial,
            )
            return
    trial = pair.trial(_trimmed(pair.earlier.client), _trimmed(pair.later.client))
    if pair.cured(trial):
        yield Cause("position-dependent-markup", True, said.format(what), remedy, "template", trial)


def _without_reasoning(request: Request, index: int) -> Request | None:
    """Return a request without one assistant turn's reasoning, in whatever form it has it; None without any."""
    message = request.messages[index]
    data: dict[str, Any] = {key: value for key, value in message.data.items() if key not in REASONING_KEYS}
    content = data.get("content")
    if isinstance(content, str) and _THINK[1] in content:
        data["content"] = content.split(_THINK[1], 1)[1].lstrip("\n")
    if data == dict(message.data):
        return None
    return with_message(request, index, Message(data, index))


def _writes_thinking(pair: Pair) -> bool:
    around = slice(max(0, pair.chars - 24), pair.chars + 24)
    return any("think" in side.text[around].lower() for side in (pair.earlier, pair.later))


def _without_new_users(pair: Pair) -> Trial | None:
    users = {index for index in pair.news if pair.later.client.messages[index].data.get("role") == "user"}
    return pair.trial(later=without(pair.later.client, users)) if users else None


def _out_of_place(pair: Pair, index: int) -> bool:
    """Tell whether a system text stands before the message that precedes it in the request."""
    return index in pair.news or index > 0


def _neutral_successors(pair: Pair) -> list[dict[str, Any]]:
    """Return messages that a conversation can go on with and that carry no text of its own."""
    reply = {"role": "assistant", "content": "ok"}
    user = {"role": "user", "content": "ok"}
    last = pair.earlier.client.messages[-1].data.get("role") if pair.earlier.client.messages else None
    return [user] if last == "assistant" else [reply, user]


def _appended(request: Request, *more: dict[str, Any]) -> Request:
    start = len(request.messages)
    new = tuple(Message(data, start + offset) for offset, data in enumerate(more))
    return request.replace(messages=(*request.messages, *new))


def _trimmed(request: Request) -> Request:
    return request.replace(
        messages=tuple(
            message.replace(content=message.content.strip()) if isinstance(message.content, str) else message
            for message in request.messages
        )
    )


_KEEPS = "a template that keeps earlier reasoning, or does not write it in the first place"

RULES = (clock, thinking_stripped, moved_system, position_dependent)
