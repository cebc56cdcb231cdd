"""Causes on the client's side: what it sent differently from before. Undone one at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..conversation import SYSTEM_ROLES, TOP_LEVEL, Message, Request
from ..policies.registry import shifts_states
from ..text import common_prefix
from .base import (
    CandidateRemedy,
    Cause,
    Counterfactual,
    PromptPair,
    RemedyKind,
    renumbered,
    with_messages,
    without,
)
from .changes import (
    MessageChange,
    as_written,
    changes,
    drops_reasoning,
    flat_text,
    moved,
    restored,
    with_dropped,
)
from .reasoning import reasoning_of, without_reasoning
from .requests import with_call_ids_of, without_setting
from .settings import ALL_TOOLS, ALL_TOOLS_LINE, CLIENT_SETTINGS, kwarg_line

#: Longest stretch that may differ in an otherwise equal text for it to count as volatile, in characters.
_VOLATILE = 400
#: Most changed messages of one pair that are undone one by one.
_MOST_TRIALS = 6
_WORD = re.compile(r"[\w:./+-]")
#: Characters of a volatile text that its remedy shows.
_SHOWN = 24


@dataclass(frozen=True, slots=True)
class Label:
    """What the change of one message is called, before it is proved.

    Attributes:
        id: an id of docs/causes.md.
        evidence: what the client did, one sentence without a full stop.
        set: what would stop it, short.
        together: whether the same kind of change in other messages is undone with it.
        values: what stood there and what stands there now, for a short stretch that changes.
    """

    id: str
    evidence: str
    set: str
    together: bool = False
    values: tuple[str, str] | None = None


def tools_changed(pair: PromptPair) -> Iterator[Cause]:
    """The tool list differs as written."""
    before, after = pair.earlier.client.tools, pair.later.client.tools
    if as_written(before) == as_written(after):
        return
    trial = pair.trial(later=pair.later.client.replace(tools=before))
    said = f"the client {_tool_change(before or (), after or ())}"
    for cause in _judged(pair, trial, "tools-changed", said, "send the same tools, written alike"):
        yield replace(cause, offers=(*_all_tools(pair), *cause.offers)) if cause.confirmed else cause


def _all_tools(pair: PromptPair) -> Iterator[CandidateRemedy]:
    """Yield the setting of a client that loads tools in mid-session, with which it sends them all at once.

    Counted is what the later request has; tools that the recording never shows make the first prompt longer
    by what nobody can tell from it.
    """
    before, after = pair.earlier.client.tools or (), pair.later.client.tools or ()
    names = {_tool_name(tool) for tool in after}
    if not searches_tools(pair.later.client) or not names > {_tool_name(tool) for tool in before}:
        return
    trial = pair.trial(earlier=pair.earlier.client.replace(tools=after))
    if trial is not None and pair.resolves(trial):
        said = f"{ALL_TOOLS} (tools that the recording never shows would be sent as well)"
        yield CandidateRemedy("client", said, trial, ALL_TOOLS_LINE, apply=("client:all-tools",))


def searches_tools(request: Request) -> bool:
    """Tell whether a client loads tools in mid-session, as Claude Code does with its tool search."""
    if any(tool.get("defer_loading") for tool in request.tools or ()):
        return True
    return any(
        isinstance(block, Mapping) and _has_reference(block)
        for message in request.messages
        for block in _blocks(message.data.get("content"))
    )


def _blocks(content: object) -> list[Any]:
    return content if isinstance(content, list) else []


def _has_reference(block: Mapping[str, Any]) -> bool:
    inner = block.get("content")
    return block.get("type") == "tool_reference" or (
        isinstance(inner, list)
        and any(isinstance(each, Mapping) and each.get("type") == "tool_reference" for each in inner)
    )


def call_ids_changed(pair: PromptPair) -> Iterator[Cause]:
    """The client gave calls that it had sent before other ids."""
    undone, renamed = with_call_ids_of(pair.earlier.client, pair.later.client)
    if not renamed:
        return
    trial = pair.trial(later=undone)
    now, was = next(iter(renamed.items()))
    calls = "a call" if len(renamed) == 1 else f"{len(renamed)} calls"
    said = f"the client gave {calls} of the earlier request another id, {was!r} before and {now!r} now"
    yield from _judged(pair, trial, "call-ids-changed", said, "send calls again with the ids that they had")


def kwargs_changed(pair: PromptPair) -> Iterator[Cause]:
    """A chat-template kwarg differs, or another field of the request that reaches the template."""
    before, after = pair.earlier.client, pair.later.client
    for name in ("kwargs", "fields"):
        old: Mapping[str, Any] = getattr(before, name)
        new: Mapping[str, Any] = getattr(after, name)
        for key in sorted(old.keys() | new.keys()):
            if key in old and key in new and as_written(old[key]) == as_written(new[key]):
                continue
            undone = {other: value for other, value in new.items() if other != key}
            if key in old:
                undone[key] = old[key]
            trial = pair.trial(later=after.replace(**{name: undone}))
            said = f"the client sent {key} {_value(old, key)} before and {_value(new, key)} now"
            wanted = f"{key}={as_written(old[key])}" if key in old else f"no {key}"
            paste = kwarg_line(pair.policy.name, key, old[key]) if key in old and name == "kwargs" else None
            apply = (f"kwarg:{key}={as_written(old[key])}",) if key in old and name == "kwargs" else ()
            yield from _judged(
                pair,
                trial,
                "kwargs-changed",
                said,
                f"{wanted} in every request",
                paste,
                kind="kwarg",
                apply=apply,
            )


def system_changed(pair: PromptPair) -> Iterator[Cause]:
    """The top-level system text differs, which other dialects than OpenAI's chat have."""
    before, after = pair.earlier.client.system, pair.later.client.system
    if as_written(before) == as_written(after):
        return
    old, new = (Message({"role": "system", "content": each}, TOP_LEVEL) for each in (before, after))
    trial = pair.trial(later=pair.later.client.replace(system=before))
    yield from _labelled(pair, trial, label_of(old, new, pair.policy.name))


def messages_changed(pair: PromptPair) -> Iterator[Cause]:
    """The client changed, removed, inserted or reordered messages that it had sent before."""
    before, after = pair.earlier.client.messages, _with_ids(pair)
    found = changes(before, after)
    if not found:
        return
    place = moved(before, after, found)
    if place is None:
        for change in sorted(found, key=lambda each: not _owns(pair, each))[:_MOST_TRIALS]:
            yield from _undone(pair, change, found)
    if len(found) == 1 and place is None:
        return  # it was undone alone already
    trial = pair.trial(later=renumbered(pair.later.client, restored(before, after)))
    if place is not None:
        did = f"moved message {before[place[0]].index} to position {after[place[1]].index}"
    else:
        did = f"changed {len(found)} earlier messages, the first of them {_said(pair, found[0])}"
    yield from _rewritten(pair, trial, did)


def _undone(pair: PromptPair, change: MessageChange, found: list[MessageChange]) -> Iterator[Cause]:
    """Undo one change, with those of the same kind where they belong together."""
    before, after = pair.earlier.client.messages, _with_ids(pair)
    if drops_reasoning(before, change):
        alike = [each for each in found if drops_reasoning(before, each)]
        items = [before[position] for each in alike for position in each.old]
        length = sum(len(reasoning_of(item)) for item in items)
        said = f"the client no longer sends the reasoning of {_listed([item.index for item in items])}: "
        trial = pair.trial(later=renumbered(pair.later.client, with_dropped(before, after, alike)))
        label = Label(
            "client-reasoning-dropped",
            f"{said}{length:,} characters are missing",
            "send items of reasoning back",
        )
        yield from _labelled(pair, trial, label)
        return
    if not change.single:
        yield from _rewritten(pair, pair.trial(later=_put_back(pair, change)), _said(pair, change))
        return
    label = label_of(before[change.old[0]], after[change.new[0]], pair.policy.name)
    alike = [change]
    if label.together:
        alike = [
            each
            for each in found
            if each.single
            and label_of(before[each.old[0]], after[each.new[0]], pair.policy.name).id == label.id
        ]
    old = {after[each.new[0]].index: before[each.old[0]] for each in alike}
    trial = pair.trial(later=with_messages(pair.later.client, old))
    others = [index for index in old if index != after[change.new[0]].index]
    more = f", and likewise {_listed(others)}" if others else ""
    yield from _labelled(pair, trial, replace(label, evidence=label.evidence + more))


def _with_ids(pair: PromptPair) -> tuple[Message, ...]:
    """Return the later messages with the ids that their calls had before: other ids are another cause."""
    return with_call_ids_of(pair.earlier.client, pair.later.client)[0].messages


def _put_back(pair: PromptPair, change: MessageChange) -> Request:
    before, after = pair.earlier.client.messages, pair.later.client.messages
    if change.kind == "insert":
        return without(pair.later.client, [after[position].index for position in change.new])
    kept = before[change.old.start : change.old.stop]
    return renumbered(pair.later.client, (*after[: change.new.start], *kept, *after[change.new.stop :]))


def _owns(pair: PromptPair, change: MessageChange) -> bool:
    before, after = pair.earlier.client.messages, pair.later.client.messages
    return pair.earlier_owner.index in [before[i].index for i in change.old] or pair.owner.index in [
        after[i].index for i in change.new
    ]


def _rewritten(pair: PromptPair, trial: Counterfactual | None, did: str) -> Iterator[Cause]:
    yield from _judged(
        pair,
        trial,
        "history-rewritten",
        f"not the template: the client {did}; {nothing_helps(pair.policy.name)}",
        "send earlier messages again as they were",
    )


def _judged(
    pair: PromptPair,
    trial: Counterfactual | None,
    id: str,
    evidence: str,
    set: str,
    paste: str | None = None,
    kind: RemedyKind = "client",
    values: tuple[str, str] | None = None,
    apply: tuple[str, ...] | None = None,
) -> Iterator[Cause]:
    """Yield a cause as confirmed where its trial resolves it, as likely where it could not be tried."""
    if trial is None:
        yield Cause(id, False, evidence, values=values)
    elif pair.resolves(trial):
        undone = (f"client:{id}",) if apply is None else apply
        offer = CandidateRemedy(kind, set, trial, paste, apply=undone)
        yield Cause(id, True, evidence, trial, (offer,), values)


def _labelled(pair: PromptPair, trial: Counterfactual | None, label: Label) -> Iterator[Cause]:
    """Yield the cause of a label, with what the client's own setting would save where there is one."""
    for cause in _judged(pair, trial, label.id, label.evidence, label.set, values=label.values):
        if cause.confirmed and label.id == "volatile-text":
            yield replace(cause, offers=(*setting_offers(pair), *cause.offers))
        else:
            yield cause


def setting_offers(pair: PromptPair) -> Iterator[CandidateRemedy]:
    """Yield the settings of known clients that take exactly what they take out of both requests."""
    for setting in CLIENT_SETTINGS:
        earlier, later = (without_setting(side.client, setting) for side in (pair.earlier, pair.later))
        if earlier is pair.earlier.client and later is pair.later.client:
            continue
        trial = pair.trial(earlier, later)
        if trial is not None and pair.resolves(trial):
            yield CandidateRemedy(
                "client", setting.set, trial, setting.paste, apply=(f"setting:{setting.set}",)
            )


def nothing_helps(policy: str) -> str:
    """Say that no setting mends a history that a client rewrites; llama.cpp can shift what stands behind."""
    return "no template helps" if shifts_states(policy) else "no template or server setting helps"


def label_of(old: Message, new: Message, policy: str) -> Label:
    """Return what the change of one message is called, the most specific first.

    Args:
        old: the message as it was.
        new: the message as it is now.
        policy: what the requests went through, for what helps.
    """
    for rule in _LABELS:
        label = rule(old, new)
        if label is not None:
            return label
    return Label(
        "history-rewritten",
        f"not the template: the client changed {_named(new)}; {nothing_helps(policy)}",
        f"send {_place(new)} again as it was",
    )


def _form_flip(old: Message, new: Message) -> Label | None:
    a, b = old.data.get("content"), new.data.get("content")
    if type(a) is type(b) or flat_text(a) is None or flat_text(a) != flat_text(b):
        return None
    forms = f"{_form(a)} before and {_form(b)} now"
    said = f"the client sent the text of {_named(new)} as {forms}"
    return Label("content-form-flip", said, "send contents in one form", together=True)


def _arguments(old: Message, new: Message) -> Label | None:
    if as_written(old.data) == as_written(new.data) or _meaning(old.data) != _meaning(new.data):
        return None
    said = f"the client wrote the tool-call arguments of {_named(new)} differently, with the same meaning"
    return Label("tool-arguments-reserialised", said, "send arguments as first sent", together=True)


def _reasoning_dropped(old: Message, new: Message) -> Label | None:
    was = reasoning_of(old)
    bare = without_reasoning(old)
    if not was or reasoning_of(new) or bare is None:
        return None
    if flat_text(bare.data.get("content")) != flat_text(new.data.get("content")):
        return None
    said = f"the client no longer sends the reasoning of {_named(new)}: {len(was):,} characters are missing"
    return Label(
        "client-reasoning-dropped",
        said,
        "send reasoning_content back",
        together=True,
    )


def _volatile(old: Message, new: Message) -> Label | None:
    stretch = volatile_stretch(old.data, new.data)
    if stretch is None:
        return None
    was, now, at = stretch
    said = f"{_named(new)} has {was!r} before and {now!r} now, at character {at:,}, and is otherwise the same"
    wanted = f"keep {_short(now)} out of {_place(new)}, or send it behind the rest"
    return Label("volatile-text", said, wanted, values=(was, now))


_LABELS: tuple[Callable[[Message, Message], Label | None], ...] = (
    _form_flip,
    _arguments,
    _reasoning_dropped,
    _volatile,
)


def volatile_stretch(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, str, int] | None:
    """Find the short stretch in which two otherwise equal messages differ.

    In a system message or a reminder any short stretch counts (a git status has no digits), elsewhere only
    one with a number in it.

    Returns:
        What stood there, what stands there now, and its offset in the text; None where more differs.
    """
    if as_written({**old, "content": None}) != as_written({**new, "content": None}):
        return None
    a, b = flat_text(old.get("content")), flat_text(new.get("content"))
    if a is None or b is None or a == b:
        return None
    start = common_prefix(a, b)
    end = common_prefix(a[start:][::-1], b[start:][::-1])
    while start and _WORD.match(a[start - 1]):
        start -= 1
    while end and _WORD.match(a[len(a) - end]):
        end -= 1
    was, now = a[start : len(a) - end], b[start : len(b) - end]
    longest = max(len(was), len(now))
    if longest > _VOLATILE or longest * 2 > max(len(a), len(b)):
        return None
    inserted = new.get("role") in SYSTEM_ROLES or "<system-reminder>" in b[:start]
    counts = any(char.isdigit() for char in was) and any(char.isdigit() for char in now)
    return (was, now, start) if inserted or counts else None


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def _place(message: Message) -> str:
    return "the system text" if message.index == TOP_LEVEL else f"message {message.index}"


def _named(message: Message) -> str:
    if message.index == TOP_LEVEL:
        return "the top-level system text"
    return f"message {message.index} ({message.data.get('role') or message.data.get('type')})"


def _form(content: Any) -> str:
    return "a list of parts" if isinstance(content, list) else "a string" if content is not None else "null"


def _meaning(value: Any) -> Any:
    """Return a value with the JSON texts of tool-call arguments read: what means the same is equal."""
    if isinstance(value, Mapping):
        return {key: _read(item) if key == "arguments" else _meaning(item) for key, item in value.items()}
    return [_meaning(item) for item in value] if isinstance(value, list | tuple) else value


def _read(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _tool_change(before: Any, after: Any) -> str:
    old, new = [_tool_name(tool) for tool in before], [_tool_name(tool) for tool in after]
    added, removed = [name for name in new if name not in old], [name for name in old if name not in new]
    said = [
        f"{did} the tool{'s' if len(names) > 1 else ''} {', '.join(names)}"
        for did, names in (("added", added), ("removed", removed))
        if names
    ]
    if said:
        return " and ".join(said)
    if old != new:
        return "reordered the tools"
    differing = [
        name for name, a, b in zip(old, before, after, strict=True) if as_written(a) != as_written(b)
    ]
    same = all(a == b for a, b in zip(before, after, strict=True))
    return f"{'reordered the keys of' if same else 'changed'} the tools {', '.join(differing)}"


def _tool_name(tool: Any) -> str:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    named = function or tool
    return str(named.get("name") if isinstance(named, Mapping) else named)


def _said(pair: PromptPair, change: MessageChange) -> str:
    old = _span(pair.earlier.client.messages, change.old)
    new = _span(pair.later.client.messages, change.new)
    return {
        "delete": f"removed {old} of the earlier request",
        "insert": f"inserted {new} among messages that it had sent before",
        "replace": f"replaced {old} of the earlier request by {new}",
    }[change.kind]


def _span(messages: tuple[Message, ...], positions: range) -> str:
    indices = [messages[position].index for position in positions]
    return f"messages {indices[0]} to {indices[-1]}" if len(indices) > 1 else _listed(indices)


def _listed(indices: list[int]) -> str:
    return f"message{'s' if len(indices) > 1 else ''} {', '.join(map(str, indices))}"


def _value(kwargs: Mapping[str, Any], key: str) -> str:
    return as_written(kwargs[key]) if key in kwargs else "not at all"


RULES = (tools_changed, kwargs_changed, call_ids_changed, system_changed, messages_changed)
