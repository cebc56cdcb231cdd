"""oMLX's relocation hook: a template object that moves later system turns itself.

The one known user is the DeepSeek V4 encoder, which turns a system run after a user turn into a
`latest_reminder` message before it (docs/servers.md, section 1; jundot/omlx,
omlx/patches/deepseek_v4/chat_template_v4.py). The hook answers in plain messages, so which message each of
them came from is found again here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from ...conversation import Message
from ..base import Action, Messages, Rewrite
from .system_turns import indices, is_system
from .texts import Text, flat_text, rebuilt

Hook = Callable[[list[dict[str, Any]]], Any]


def relocate(messages: Messages, hook: Hook) -> Rewrite:
    """Let a template's hook move the system turns; nothing changes where it raises or answers no messages."""
    given = [copy.deepcopy(dict(message.data)) for message in messages]
    try:
        answer = hook(list(given))
    except Exception:  # the server goes on without the hook, whatever it raised
        return Rewrite(messages)
    if not isinstance(answer, list) or not all(isinstance(data, Mapping) for data in answer):
        return Rewrite(messages)
    moved = _with_origins(messages, given, answer)
    gone = [message for message in messages if is_system(message) and message not in moved]
    if not gone:
        return Rewrite(moved)
    why = "the template's own hook moved it"
    return Rewrite(moved, (Action("relocated", indices(gone), why),))


def _with_origins(messages: Messages, given: list[dict[str, Any]], answer: list[Any]) -> Messages:
    """Return the hook's messages: given objects and equal ones are known, others carry texts of the rest."""
    known = {id(data): n for n, data in enumerate(given)}
    sources = [known.get(id(data)) for data in answer]
    rest = [n for n in range(len(messages)) if n not in sources]
    for place, data in enumerate(answer):
        if sources[place] is None and (equal := [n for n in rest if messages[n].data == data]):
            sources[place] = equal[0]
            rest.remove(equal[0])
    candidates = [messages[n] for n in rest]
    output: list[Message] = []
    for data, source in zip(answer, sources, strict=True):
        if source is None:
            output.append(_built(data, candidates, output[-1].index if output else 0))
        else:
            same = messages[source].data == data
            output.append(messages[source] if same else Message(dict(data), messages[source].index))
    return tuple(output)


def _built(data: Mapping[str, Any], candidates: list[Message], index: int) -> Message:
    """Return a new message with the origins of the texts that stand in its content one after another.

    A candidate whose text is found is taken off the list; a message without any gets `index`.
    """
    content = data.get("content")
    owners: list[tuple[int, int]] = []
    end = 0
    for candidate in tuple(candidates):
        text = flat_text(candidate).text
        at = content.find(text, end) if isinstance(content, str) and text else -1
        if at >= 0:
            owners.append((end, candidate.index))
            end = at + len(text)
            candidates.remove(candidate)
    if not owners:
        return Message(dict(data), index)
    return rebuilt(Message(dict(data), owners[0][1]), content, Text("", tuple(owners)).pieces())
