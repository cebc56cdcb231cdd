"""Requests as a client would have sent them with something undone: a setting, or ids made anew."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from ..conversation import Message, Request
from .changes import as_written
from .settings import ClientSetting

#: Keys under which the dialects hold the ids of calls and of their results.
_CALL_IDS = frozenset({"id", "call_id", "tool_call_id", "tool_use_id"})
#: Keys whose values are a call's arguments: an `id` in them is the model's.
_VERBATIM = frozenset({"arguments", "input"})
#: Keys of a client's notes to the server, which no template sees.
_BOOKKEEPING = frozenset({"cache_control", "metadata", "encrypted_content"})


def without_setting(request: Request, setting: ClientSetting) -> Request:
    """Return a request as a client with a setting would have sent it; itself where that changes nothing.

    A block that has nothing left is left out, and so is a message without any block.
    """
    system = _stripped(request.system, setting.without)
    messages = []
    for message in request.messages:
        content = message.data.get("content")
        left = _stripped(content, setting.without)
        if left is content:
            messages.append(message)
        elif left:
            messages.append(Message({**message.data, "content": left}, message.index))
    same = system is request.system and len(messages) == len(request.messages)
    if same and all(map(operator.is_, messages, request.messages)):
        return request
    return request.replace(system=system or None, messages=tuple(messages))


def _stripped(content: Any, strip: Callable[[str], str]) -> Any:
    """Return a content without a text; the same object where it does not have it."""
    if isinstance(content, str):
        left = strip(content)
        return content if left == content else left
    if not isinstance(content, list | tuple):
        return content
    blocks = []
    changed = False
    for block in content:
        text = block.get("text") if isinstance(block, Mapping) else None
        rest = strip(text) if isinstance(text, str) else text
        changed |= rest != text
        if rest == text:
            blocks.append(block)
        elif rest:
            blocks.append({**block, "text": rest})
    return blocks if changed else content


def with_call_ids_of(before: Request, after: Request) -> tuple[Request, dict[str, str]]:
    """Return a request with the call ids that an earlier one had for the same calls and results.

    Returns:
        The request, and the ids that it had with those in their place; itself and nothing where no id that
        both have in the same place differs.
    """
    renamed: dict[str, str] = {}
    for old, new in zip(before.messages, after.messages, strict=False):
        if old.data is new.data:
            continue
        if as_written(_blank(old.data)) != as_written(_blank(new.data)):
            break
        for was, now in zip(_ids(old.data), _ids(new.data), strict=True):
            if was != now:
                renamed.setdefault(now, was)
    if not renamed:
        return after, {}
    messages = tuple(Message(_rename(each.data, renamed), each.index) for each in after.messages)
    return after.replace(messages=messages), renamed


def _blank(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key: None
            if key in _CALL_IDS and isinstance(item, str)
            else (item if key in _VERBATIM else _blank(item))
            for key, item in value.items()
            if key not in _BOOKKEEPING
        }
    return [_blank(each) for each in value] if isinstance(value, list | tuple) else value


def _ids(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        found = []
        for key, item in value.items():
            if key in _CALL_IDS and isinstance(item, str):
                found.append(item)
            elif key not in _BOOKKEEPING | _VERBATIM:
                found += _ids(item)
        return found
    return [each for item in value for each in _ids(item)] if isinstance(value, list | tuple) else []


def _rename(value: Any, renamed: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {
            key: renamed.get(item, item)
            if key in _CALL_IDS and isinstance(item, str)
            else (item if key in _VERBATIM else _rename(item, renamed))
            for key, item in value.items()
        }
    return [_rename(each, renamed) for each in value] if isinstance(value, list | tuple) else value
