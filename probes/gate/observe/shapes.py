"""The conversations whose prompts the gate compares: what chats, tool loops and reasoning models send.

Every text that has to stand in a prompt contains made-up words (`zq…zq`), each in one message alone, so that
a prompt shows which messages it holds and in which order. A signature file depends on these conversations:
where one of them changes, `VERSION` has to rise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...conversation import SYSTEM_ROLES, Message, Request
from ...templates.rendering import REASONING_KEYS
from ..subject import Subject

#: Raised whenever a conversation below changes.
VERSION = 1

_WORD = re.compile(r"zq[a-z]+zq")
Body = Mapping[str, Any]


@dataclass(frozen=True)
class Shape:
    """One conversation, as the requests that a client sends while it grows.

    Attributes:
        group: what kind of conversation it is: `plain`, `tools`, `reasoning` or `system`.
        name: which one of its kind.
        messages: the whole conversation.
        tools: the tool list of every request, or None.
        kwargs: chat-template kwargs of every request.
        partial: whether the last message is an assistant turn to be continued.
        with_switches: whether it is rendered with every switch of the template as well.
        engines: whether llama.cpp's engine renders it as well, which takes longer.
    """

    group: str
    name: str
    messages: tuple[Body, ...]
    tools: tuple[Body, ...] | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    partial: bool = False
    with_switches: bool = False
    engines: bool = False

    def subject(self, variant: str = "") -> Subject:
        """Return what reports call the conversation, rendered in some way."""
        return Subject(self.group, self.name, variant)

    @cached_property
    def requests(self) -> tuple[Request, ...]:
        """The requests: the conversation up to each point at which the model is asked."""
        last = len(self.messages)
        ends = [end for end in range(1, last + 1) if end == last or self._asks(end)]
        return tuple(
            Request(
                tuple(Message(body, index) for index, body in enumerate(self.messages[:end])),
                self.tools,
                self.kwargs,
                partial=self.partial and end == last,
            )
            for end in ends
        )

    def _asks(self, end: int) -> bool:
        roles = [str(body["role"]) for body in self.messages]
        return roles[end] == "assistant" != roles[end - 1]


def words(message: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the made-up words of a message that have to stand in a prompt: not those of its reasoning."""
    shown = {key: value for key, value in message.items() if key not in REASONING_KEYS}
    text = re.sub(r"<think>.*?</think>", "", json.dumps(shown), flags=re.DOTALL)
    return tuple(dict.fromkeys(_WORD.findall(text)))


def is_mid_system(messages: Sequence[Message], index: int) -> bool:
    """Return whether a message is a system or developer turn that other turns precede."""
    return messages[index].role in SYSTEM_ROLES and any(
        message.role not in SYSTEM_ROLES for message in messages[:index]
    )


def _message(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def _call(number: int, name: str, arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": f"gatecall{number}", "type": "function", "function": function}


def _calls(*calls: Body, content: Any = "", **more: Any) -> dict[str, Any]:
    return _message("assistant", content, tool_calls=list(calls), **more)


def _result(number: int, name: str, content: Any) -> dict[str, Any]:
    return _message("tool", content, tool_call_id=f"gatecall{number}", name=name)


def _parameter(kind: str, description: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "description": description, **more}


def _tool(name: str, description: str, required: Sequence[str], **properties: Body) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


_TIDES = _tool(
    "get_tides",
    "Tell the tides of a harbour.",
    ["harbour"],
    harbour=_parameter("string", "Name of the harbour."),
    day=_parameter("string", "The day.", enum=["today", "tomorrow"]),
)
_BOOK = _tool(
    "book_berth",
    'Book a berth: "quay" or <buoy>, naïve or not.',
    ["boat", "nights"],
    boat=_parameter(
        "object",
        "The boat.",
        properties={"name": _parameter("string", "Its name."), "length": _parameter("number", "In metres.")},
        required=["name"],
    ),
    nights=_parameter("integer", "How many nights."),
    extras=_parameter("array", "What else.", items={"type": "string"}),
)
_NOW = _tool("tell_time", "Tell the time.", [])
_ONE_TOOL = (_TIDES,)
_TOOLS = (_TIDES, _BOOK, _NOW)

_SYSTEM = _message("system", "You are zqpilotzq.")
_DEVELOPER = _message("developer", "You are zqpilotzq.")
_ASK = _message("user", "Ask zqanchorzq?")
_REPLY = _message("assistant", "Reply zqbuoyzq.")
_NEXT = _message("user", "Then zqcovezq?")
_ANSWER = _message("assistant", "Answer zqdeckzq.")
_LAST = _message("user", "And zqebbzq?")
_REMINDER = _message("system", "Reminder zqfloodzq.")
_SECOND_REMINDER = _message("system", "Reminder zqgalezq.")
_TIDES_CALL = _call(1, "get_tides", {"harbour": "zqharbourzq"})
_SECOND_CALL = _call(2, "get_tides", {"harbour": "zqjettyzq", "day": "today"})
_CALL = _calls(_TIDES_CALL)
_RESULT = _result(1, "get_tides", "High at zqislezq.")
_CALL_AGAIN = _calls(_SECOND_CALL)
_RESULT_AGAIN = _result(2, "get_tides", "Low at zqkeelzq.")
_THOUGHT, _THOUGHT_AGAIN, _THIRD_THOUGHT = "Thought zqlogzq.", "Thought zqmastzq.", "Thought zqnetzq."
_NESTED = {
    "boat": {"name": 'zqharbourzq "näive"', "length": 9.5},
    "nights": 2,
    "extras": ["water", "<power>"],
    "late": True,
    "note": None,
}
_LOOP = (_CALL, _RESULT, _CALL_AGAIN, _RESULT_AGAIN)


def _thinking(message: Body, key: str, text: str) -> dict[str, Any]:
    return {**message, key: text}


def _reasoned(key: str) -> tuple[Body, ...]:
    """Return a chat whose assistant turns have reasoning under a key."""
    reply, answer = _thinking(_REPLY, key, _THOUGHT), _thinking(_ANSWER, key, _THOUGHT_AGAIN)
    return (_SYSTEM, _ASK, reply, _NEXT, answer, _LAST)


def _inline(message: Body, text: str) -> dict[str, Any]:
    return {**message, "content": f"<think>\n{text}\n</think>\n\n{message['content']}"}


def _parts(message: Body) -> dict[str, Any]:
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


_REASONED_LOOP: tuple[Body, ...] = (
    _SYSTEM,
    _ASK,
    _thinking(_CALL, "reasoning_content", _THOUGHT),
    _RESULT,
    _thinking(_CALL_AGAIN, "reasoning_content", _THOUGHT_AGAIN),
    _RESULT_AGAIN,
    _thinking(_REPLY, "reasoning_content", _THIRD_THOUGHT),
    _NEXT,
)

_PLAIN = (
    Shape("plain", "question", (_ASK,), with_switches=True),
    Shape("plain", "chat", (_ASK, _REPLY, _NEXT, _ANSWER, _LAST), with_switches=True, engines=True),
    Shape("plain", "leading-system", (_SYSTEM, _ASK, _REPLY, _NEXT), with_switches=True, engines=True),
    Shape("plain", "leading-developer", (_DEVELOPER, _ASK, _REPLY, _NEXT), engines=True),
    Shape("plain", "empty-system", (_message("system", ""), _ASK, _REPLY, _NEXT)),
    Shape(
        "plain",
        "white-space",
        (
            _message("system", "\n You are zqpilotzq.\n\n"),
            _message("user", "  Ask zqanchorzq?\n"),
            _message("assistant", "\n\nReply zqbuoyzq. \n"),
            _message("user", "\tThen zqcovezq?\n\n\nDone.  "),
        ),
        engines=True,
    ),
    Shape(
        "plain",
        "odd-characters",
        (
            _message("user", "Ask \"zqanchorzq\" & <b>'näive' 漢字 🙂</b> {{ braces }} {% tag %} \\n"),
            _message("assistant", "Reply `zqbuoyzq` <|tag|> </s> [INST] $x_1$"),
            _NEXT,
        ),
    ),
    Shape(
        "plain", "text-parts", (_parts(_SYSTEM), _parts(_ASK), _parts(_REPLY), _parts(_NEXT)), engines=True
    ),
    Shape(
        "plain",
        "several-parts",
        (_message("user", [{"type": "text", "text": "zqanchorzq"}, {"type": "text", "text": "zqcovezq"}]),),
    ),
    Shape(
        "plain",
        "image",
        (_message("user", [{"type": "image"}, {"type": "text", "text": "Ask zqanchorzq?"}]), _REPLY, _NEXT),
    ),
    Shape("plain", "empty-reply", (_ASK, _message("assistant", ""), _NEXT)),
    Shape("plain", "two-questions", (_ASK, _NEXT, _REPLY, _LAST)),
    Shape("plain", "two-replies", (_ASK, _REPLY, _ANSWER, _LAST)),
    Shape("plain", "reply-first", (_REPLY, _ASK)),
    Shape("plain", "continued", (_ASK, _message("assistant", "Reply zqbuoyzq")), partial=True),
    Shape(
        "plain",
        "documents",
        (_ASK,),
        kwargs={"documents": [{"title": "Pilot book", "text": "Shoals.", "content": "Shoals."}]},
    ),
)
_WITH_TOOLS = (
    Shape("tools", "offered", (_SYSTEM, _ASK, _REPLY, _NEXT), _TOOLS, with_switches=True, engines=True),
    Shape(
        "tools",
        "round",
        (_SYSTEM, _ASK, _CALL, _RESULT, _REPLY, _NEXT),
        _ONE_TOOL,
        with_switches=True,
        engines=True,
    ),
    Shape("tools", "loop", (_SYSTEM, _ASK, *_LOOP, _REPLY, _NEXT), _TOOLS),
    Shape("tools", "no-system", (_ASK, _CALL, _RESULT, _REPLY, _NEXT), _ONE_TOOL),
    Shape(
        "tools",
        "parallel-calls",
        (_SYSTEM, _ASK, _calls(_TIDES_CALL, _SECOND_CALL), _RESULT, _RESULT_AGAIN, _REPLY, _NEXT),
        _ONE_TOOL,
        engines=True,
    ),
    Shape(
        "tools",
        "text-and-call",
        (_ASK, _calls(_TIDES_CALL, content="First zqdeckzq."), _RESULT),
        _ONE_TOOL,
    ),
    Shape("tools", "null-content", (_ASK, _calls(_TIDES_CALL, content=None), _RESULT), _ONE_TOOL),
    Shape(
        "tools",
        "string-arguments",
        (_ASK, _calls(_call(1, "get_tides", '{"harbour": "zqharbourzq"}')), _RESULT),
        _ONE_TOOL,
        engines=True,
    ),
    Shape(
        "tools",
        "nested-arguments",
        (
            _ASK,
            _calls(_call(1, "book_berth", _NESTED)),
            _result(1, "book_berth", '{"berth": "zqislezq", "free": false}'),
        ),
        _TOOLS,
        engines=True,
    ),
    Shape(
        "tools",
        "no-arguments",
        (_ASK, _calls(_call(1, "tell_time", {})), _result(1, "tell_time", "zqislezq")),
        _TOOLS,
    ),
    Shape("tools", "result-parts", (_ASK, _CALL, _parts(_RESULT)), _ONE_TOOL),
    Shape("tools", "not-offered", (_ASK, _CALL, _RESULT, _REPLY, _NEXT)),
    Shape("tools", "two-loops", (_ASK, _CALL, _RESULT, _REPLY, _NEXT, _CALL_AGAIN, _RESULT_AGAIN), _ONE_TOOL),
)
_WITH_REASONING = (
    Shape("reasoning", "chat", _reasoned("reasoning_content"), with_switches=True, engines=True),
    Shape("reasoning", "loop", _REASONED_LOOP, _ONE_TOOL, with_switches=True, engines=True),
    Shape("reasoning", "key-reasoning", _reasoned("reasoning")),
    Shape("reasoning", "key-thinking", _reasoned("thinking")),
    Shape(
        "reasoning",
        "inline",
        (_SYSTEM, _ASK, _inline(_REPLY, _THOUGHT), _NEXT, _inline(_ANSWER, _THOUGHT_AGAIN), _LAST),
        engines=True,
    ),
    Shape(
        "reasoning",
        "inline-loop",
        (_ASK, {**_CALL, "content": f"<think>\n{_THOUGHT}\n</think>\n\n"}, _RESULT),
        _ONE_TOOL,
    ),
    Shape("reasoning", "empty", (_ASK, _thinking(_REPLY, "reasoning_content", ""), _NEXT)),
)
_WITH_SYSTEM = (
    Shape("system", "after-user", (_SYSTEM, _ASK, _REMINDER, _REPLY, _NEXT, _SECOND_REMINDER), engines=True),
    Shape("system", "before-user", (_SYSTEM, _ASK, _REPLY, _REMINDER, _NEXT)),
    Shape(
        "system",
        "after-result",
        (_SYSTEM, _ASK, _CALL, _RESULT, _REMINDER, _REPLY, _NEXT),
        _ONE_TOOL,
        engines=True,
    ),
    Shape(
        "system",
        "in-loop",
        (_ASK, _REMINDER, _CALL, _RESULT, _SECOND_REMINDER, _CALL_AGAIN, _RESULT_AGAIN),
        _ONE_TOOL,
    ),
    Shape("system", "two-in-a-row", (_SYSTEM, _ASK, _REMINDER, _SECOND_REMINDER)),
    Shape("system", "developer", (_DEVELOPER, _ASK, _REPLY, {**_REMINDER, "role": "developer"}, _NEXT)),
)

#: All conversations, in the order in which reports name them.
SHAPES: tuple[Shape, ...] = _PLAIN + _WITH_TOOLS + _WITH_REASONING + _WITH_SYSTEM
