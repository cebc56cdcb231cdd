"""A session as its client would have sent it with something undone in every request."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ..causes.base import renumbered, with_messages
from ..causes.changes import as_written, changes, drops_reasoning, restored, with_dropped
from ..causes.client import label_of
from ..causes.reasoning import reasoning_of
from ..causes.requests import with_call_ids_of, without_setting
from ..causes.settings import CLIENT_SETTINGS
from ..conversation import TOP_LEVEL, Message, Request, Transcript
from ..templates.rendering import REASONING_KEYS
from ..transcripts.grouping.arrival import in_order_of_arrival
from ..transcripts.grouping.conversations import Continuation, Conversations

#: Returns a request with something undone, given its predecessor with the same undone, if it has one.
Change = Callable[[Request, Request | None, Continuation], Request]


class ChangedSession:
    """The requests of a session, read once and changed as often as asked.

    Args:
        transcript: the session.
    """

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._requests: list[tuple[Request, Continuation]] | None = None

    def with_(self, steps: Sequence[str]) -> Transcript:
        """Return the session with remedies applied (`Remedy.apply`), as far as they are the client's."""
        made = [change for change in map(self._change, steps) if change is not None]
        if not made:
            return self._transcript

        def read() -> Iterator[Request]:
            done: dict[int, Request] = {}
            for request, continuation in self._read():
                before = done.get(continuation.predecessor or 0)
                for change in made:
                    request = change(request, before, continuation)
                done[continuation.turn] = request
            for _, request in sorted(done.items()):
                yield request

        return replace(self._transcript, open=read)

    def _read(self) -> list[tuple[Request, Continuation]]:
        if self._requests is None:
            arrived = in_order_of_arrival(self._transcript, Conversations())
            self._requests = [(request, continuation) for continuation, request in arrived]
        return self._requests

    def _change(self, step: str) -> Change | None:
        kind, _, what = step.partition(":")
        if kind == "kwarg":
            name, _, value = what.partition("=")
            kwargs = {name: json.loads(value)}
            return lambda request, before, place: request.replace(kwargs={**request.kwargs, **kwargs})
        if kind == "setting":
            setting = next(each for each in CLIENT_SETTINGS if each.set == what)
            return lambda request, before, place: without_setting(request, setting)
        if kind != "client":
            return None
        if what == "all-tools":
            return self._all_tools
        return lambda request, before, place: _undone(what, request, before, place)

    def _all_tools(self, request: Request, before: Request | None, place: Continuation) -> Request:
        """Give a request all tools that its conversation shows at any time."""
        if not request.tools:
            return request
        lists = [each.tools or () for each, other in self._read() if other.conversation == place.conversation]
        return request.replace(tools=max(lists, key=len))


def _undone(cause: str, request: Request, before: Request | None, place: Continuation) -> Request:
    """Undo what a cause is about, with what the predecessor had."""
    if before is None or place.relation == "branch":
        return request
    if cause == "tools-changed":
        return request.replace(tools=before.tools)
    if cause == "call-ids-changed":
        return with_call_ids_of(before, request)[0]
    if cause == "client-reasoning-dropped":
        request = _with_reasoning(request, before)
        found = changes(before.messages, request.messages)
        if dropped := [each for each in found if drops_reasoning(before.messages, each)]:
            request = renumbered(request, with_dropped(before.messages, request.messages, dropped))
    request = _system_undone(cause, request, before)
    if cause == "history-rewritten":
        return renumbered(request, restored(before.messages, request.messages))
    old = {
        request.messages[change.new[0]].index: before.messages[change.old[0]]
        for change in changes(before.messages, request.messages)
        if change.single
        and label_of(before.messages[change.old[0]], request.messages[change.new[0]], "").id == cause
    }
    return with_messages(request, old) if old else request


def _system_undone(cause: str, request: Request, before: Request) -> Request:
    if as_written(before.system) == as_written(request.system):
        return request
    old, new = (Message({"role": "system", "content": each.system}, TOP_LEVEL) for each in (before, request))
    return request.replace(system=before.system) if label_of(old, new, "").id == cause else request


def _with_reasoning(request: Request, before: Request) -> Request:
    """Give the message that stands for the predecessor's reply the reasoning that this had."""
    at = len(before.messages)
    if before.reply is None or at >= len(request.messages):
        return request
    message = request.messages[at]
    kept = {key: before.reply[key] for key in REASONING_KEYS if before.reply.get(key)}
    if message.data.get("role") != "assistant" or not kept or reasoning_of(message):
        return request
    return with_messages(request, {message.index: message.replace(**kept)})
