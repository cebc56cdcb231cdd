"""Causes on the client's side: what it sent differently from before. Undone one at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any

from ..conversation import SYSTEM_ROLES, Message
from ..rendering import REASONING_KEYS
from ..tokens import common_prefix
from .base import Cause, Pair, with_message

#: Longest stretch that may differ in an otherwise equal text for it to count as volatile, in characters.
_VOLATILE = 400
_KNOWN_CLIENT_SETTINGS = {
    "x-anthropic-billing-header": "CLAUDE_CODE_ATTRIBUTION_HEADER=0 in the env of ~/.claude/settings.json",
    "total_tokens": "CLAUDE_CODE_TOTAL_TOKENS_REMINDER=off in the env of ~/.claude/settings.json",
    "git status": '"includeGitInstructions": false in ~/.claude/settings.json',
}


def tools_changed(pair: Pair) -> Iterator[Cause]:
    """The tool list differs as written."""
    before, after = pair.earlier.client.tools, pair.later.client.tools
    if as_written(before) != as_written(after):
        trial = pair.trial(later=pair.later.client.replace(tools=before))
        said = _tool_change(before or (), after or ())
        yield Cause(
            "tools-changed",
            pair.cured(trial),
            f"the client {said}",
            "send the tools of the first request, in its order, in every request",
            "client",
            trial,
        )


def kwargs_changed(pair: Pair) -> Iterator[Cause]:
    """A chat-template kwarg differs."""
    before, after = pair.earlier.client.kwargs, pair.later.client.kwargs
    for key in sorted(before.keys() | after.keys()):
        if as_written(before.get(key, _ABSENT)) == as_written(after.get(key, _ABSENT)):
            continue
        kwargs = {name: value for name, value in after.items() if name != key}
        if key in before:
            kwargs[key] = before[key]
        trial = pair.trial(later=pair.later.client.replace(kwargs=kwargs))
        was, now = _value(before, key), _value(after, key)
        yield Cause(
            "kwargs-changed",
            pair.cured(trial),
            f"the client sent {key} {was} before and {now} now",
            f"send {key} alike in every request",
            "client",
            trial,
        )


def message_changed(pair: Pair) -> Iterator[Cause]:
    """The client changed, removed, inserted or reordered messages that it had sent before."""
    before, after = pair.earlier.client.messages, pair.later.client.messages
    change = first_change(before, after)
    if change is None:
        return
    kind, start, end, new_start, new_end = change
    if kind == "replace" and end - start == new_end - new_start:
        for index, new_index in zip(range(start, end), range(new_start, new_end), strict=True):
            restored = with_message(pair.later.client, new_index, before[index])
            trial = pair.trial(later=restored)
            yield _one_message(pair, before[index], after[new_index], new_index, trial)
            return
    restored_messages = (*after[:new_start], *before[start:end], *after[new_end:])
    trial = pair.trial(
        later=pair.later.client.replace(
            messages=tuple(Message(each.data, index) for index, each in enumerate(restored_messages))
        )
    )
    said = {
        "delete": f"removed {_span(start, end)} of the earlier request",
        "insert": f"inserted {_span(new_start, new_end)} among messages that it had sent before",
        "replace": f"replaced {_span(start, end)} of the earlier request by {_span(new_start, new_end)}",
    }[kind]
    yield Cause(
        "history-rewritten",
        pair.cured(trial),
        f"not the template: the client {said}",
        None,
        "client",
        trial,
    )


def first_change(
    before: tuple[Message, ...], after: tuple[Message, ...]
) -> tuple[str, int, int, int, int] | None:
    """Find the first change that a client made to messages which it had sent before; None if it only appended.

    Returns:
        `replace`, `delete` or `insert`, and the ranges of both lists that it is about.
    """
    old, new = [as_written(each.data) for each in before], [as_written(each.data) for each in after]
    same = 0
    while same < min(len(old), len(new)) and old[same] == new[same]:
        same += 1
    if same == len(old):
        return None
    if same == len(new):
        return "delete", same, len(old), same, same
    matcher = SequenceMatcher(None, old[same:], new[same:], autojunk=False)
    for kind, start, end, new_start, new_end in matcher.get_opcodes():
        if kind != "equal":
            start, end, new_start, new_end = (same + each for each in (start, end, new_start, new_end))
            if kind == "replace" and end == len(old):
                # What follows the earlier request's last message is new, not a replacement.
                new_end = min(new_end, new_start + end - start)
            return kind, start, end, new_start, new_end
    return None


def as_written(value: Any) -> str:
    """Return a value as it was written: key order and all. Two values differ for a prompt where this differs."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _one_message(pair: Pair, before: Message, after: Message, index: int, trial: Any) -> Cause:
    cured = pair.cured(trial)
    old, new = before.data, after.data
    role = after.data.get("role")
    if _flat(old.get("content")) == _flat(new.get("content")) and type(old.get("content")) is not type(
        new.get("content")
    ):
        forms = f"{_form(old.get('content'))} before and {_form(new.get('content'))} now"
        return Cause(
            "content-form-flip",
            cured,
            f"the client sent the text of message {index} ({role}) as {forms}",
            "send contents in one form only",
            "client",
            trial,
        )
    if _only_arguments_differ(old, new):
        return Cause(
            "tool-arguments-reserialised",
            cured,
            f"the client wrote the tool-call arguments of message {index} differently, with the same meaning",
            "send tool-call arguments as the model wrote them",
            "client",
            trial,
        )
    lost = [key for key in REASONING_KEYS if old.get(key) and not new.get(key)]
    if lost:
        missing = len(str(old[lost[0]]))
        return Cause(
            "client-reasoning-dropped",
            cured,
            f"the client no longer sends the reasoning of message {index}: {missing:,} characters are missing",
            "let the client send reasoning back (reasoning_content)",
            "client",
            trial,
        )
    stretch = volatile_stretch(old, new)
    if stretch is not None:
        was, now, at = stretch
        setting = next(
            (
                text
                for mark, text in _KNOWN_CLIENT_SETTINGS.items()
                if mark in _around(_flat(new.get("content")), at).lower()
            ),
            None,
        )
        return Cause(
            "volatile-text",
            cured,
            f"message {index} ({role}) has {was!r} before and {now!r} now, at character {at}, and is else the same",
            setting or "keep text that changes out of earlier messages",
            "client",
            trial,
        )
    return Cause(
        "history-rewritten",
        cured,
        f"not the template: the client changed message {index} ({role})",
        None,
        "client",
        trial,
    )


def volatile_stretch(old: Any, new: Any) -> tuple[str, str, int] | None:
    """Find the short stretch in which two otherwise equal messages differ.

    Returns:
        What stood there, what stands there now, and its offset in the message's text; None where more differs.
    """
    if {key for key in old if key != "content"} != {key for key in new if key != "content"} or any(
        as_written(old[key]) != as_written(new[key]) for key in old if key != "content"
    ):
        return None
    a, b = _flat(old.get("content")), _flat(new.get("content"))
    if a is None or b is None or a == b:
        return None
    start = common_prefix(a, b)
    end = common_prefix(a[start:][::-1], b[start:][::-1])
    was, now = a[start : len(a) - end], b[start : len(b) - end]
    changed = max(len(was), len(now))
    leading = new.get("role") in SYSTEM_ROLES or new.get("role") == "user"
    if changed > _VOLATILE or changed * 2 > max(len(a), len(b)) or not (leading or _counter_like(was, now)):
        return None
    return was, now, start


def _counter_like(was: str, now: str) -> bool:
    return any(char.isdigit() for char in was + now) and not any(len(word) > 40 for word in (was, now))


def _around(text: str | None, at: int) -> str:
    return (text or "")[max(0, at - 200) : at + 200]


def _flat(content: Any) -> str | None:
    """Return the text of a content in either form; None where it has parts that are no text."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, dict) else part for part in content]
        if all(isinstance(text, str) for text in texts):
            return "\n".join(map(str, texts))
    return None


def _form(content: Any) -> str:
    return "a list of parts" if isinstance(content, list) else "a string" if content is not None else "null"


def _only_arguments_differ(old: Any, new: Any) -> bool:
    if as_written({**old, "tool_calls": None}) != as_written({**new, "tool_calls": None}):
        return False
    return bool(old.get("tool_calls")) and _parsed(old.get("tool_calls")) == _parsed(new.get("tool_calls"))


def _parsed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _loads(item) if key == "arguments" else _parsed(item) for key, item in value.items()}
    return [_parsed(item) for item in value] if isinstance(value, list) else value


def _loads(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _tool_change(before: Any, after: Any) -> str:
    old, new = [_tool_name(tool) for tool in before], [_tool_name(tool) for tool in after]
    added, removed = [name for name in new if name not in old], [name for name in old if name not in new]
    if added or removed:
        parts = [f"added the tools {', '.join(added)}"] if added else []
        return " and ".join([*parts, *([f"removed the tools {', '.join(removed)}"] if removed else [])])
    if old != new:
        return "reordered the tools"
    names = [name for name, a, b in zip(old, before, after, strict=True) if as_written(a) != as_written(b)]
    same = all(a == b for a, b in zip(before, after, strict=True))
    return f"{'reordered the keys of' if same else 'changed'} the tools {', '.join(names)}"


def _tool_name(tool: Any) -> str:
    function = tool.get("function") if isinstance(tool, dict) else None
    return str((function or tool).get("name") if isinstance(function or tool, dict) else tool)


def _span(start: int, end: int) -> str:
    return f"message {start}" if end - start == 1 else f"messages {start} to {end - 1}"


def _value(kwargs: Any, key: str) -> str:
    return as_written(kwargs[key]) if key in kwargs else "not at all"


_ABSENT = "\0absent"

RULES = (tools_changed, kwargs_changed, message_changed)
