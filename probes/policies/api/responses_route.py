"""Responses items as OpenAI chat messages: the conversion that servers make on `/v1/responses`.

What the servers share is here: instructions become the first system message, neighbouring function calls
become one calling assistant turn, reasoning summaries go to the assistant turn after them, `developer`
becomes `system` where it stands. Where servers differ, `ResponsesRules` says how; its defaults are oMLX's
(docs/servers.md, section 1; jundot/omlx, omlx/api/responses_utils.py). A policy then applies its own rules to
the system turns of the result.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ...conversation import TOP_LEVEL, Message, Request
from ..base import Action, Prepared
from .chat_route import parsed_arguments

_TEXT_TYPES = ("input_text", "text", "output_text")


@dataclass(frozen=True, slots=True)
class ResponsesRules:
    """How a server writes Responses items as chat messages.

    Attributes:
        reasoning: whether reasoning summaries become `reasoning_content`; else they are left out.
        images: whether images are kept, as `input_image` parts; else they are left out, and a tool output
            gets a remark in their place.
        between_parts: joins the texts of one message, and those of a tool's output.
        join_calls: whether neighbouring function calls, and the assistant text before them, are one turn;
            else each call is a turn of its own. `calls` joins calls, but not the text before them.
        calls_reason: whether reasoning before function calls goes to their turn; else it waits for the next
            assistant message.
        list_outputs: what a tool's output that is a list becomes: its texts as one, its JSON text, or the
            same list.
        raw_arguments: whether the arguments of function calls stay the text that they are.
        lists: whether contents stay lists of parts, of which a text becomes one.
        empty_parts: whether parts of messages without text count as lines; else they are left out.
    """

    reasoning: bool = True
    images: bool = False
    between_parts: str = "\n"
    join_calls: bool | Literal["calls"] = True
    list_outputs: Literal["text", "json", "parts"] = "text"
    raw_arguments: bool = False
    empty_parts: bool = True
    lists: bool = False
    calls_reason: bool = True


def convert_responses(request: Request, rules: ResponsesRules) -> Prepared:
    """Return a request of the dialect `openai-responses` in OpenAI chat form, and what was lost or changed.

    A chat message has the index of the item that its role and content came from; a calling assistant turn
    without text has that of its first call. Neighbouring turns of one role are not joined, and system turns
    stay where they are.
    """
    builder = _Builder(rules)
    if isinstance(request.system, str) and request.system:
        builder.messages.append(Message({"role": "system", "content": request.system}, TOP_LEVEL))
        builder.actions.append(Action("converted", (TOP_LEVEL,), "the instructions become the first message"))
    for item in request.messages:
        builder.add(item)
    builder.finish()
    converted = request.replace(
        messages=tuple(builder.messages),
        tools=responses_tools(request.tools),
        system=None,
        dialect="openai-chat",
    )
    return Prepared(converted, tuple(builder.actions))


def responses_tools(tools: Iterable[Mapping[str, Any]] | None) -> tuple[Mapping[str, Any], ...] | None:
    """Return Responses function tools in OpenAI chat form, others left out; None for none."""
    converted = []
    for tool in tools or ():
        if tool.get("type") == "function" and tool.get("name"):
            keys = [key for key in ("description", "parameters") if tool.get(key)]
            keys += ["strict"] if tool.get("strict") is not None else []
            function = {"name": tool["name"], **{key: tool[key] for key in keys}}
            converted.append({"type": "function", "function": function})
    return tuple(converted) or None


@dataclass(slots=True)
class _Builder:
    """The chat messages so far, and what waits for the next assistant turn."""

    rules: ResponsesRules
    messages: list[Message] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    callers: list[int] = field(default_factory=list)
    reasoning: str = ""
    images: list[dict[str, Any]] = field(default_factory=list)
    pictured: int = 0

    def add(self, item: Message) -> None:
        kind = item.data.get("type") or ("message" if item.data.get("role") else None)
        if kind != "function_call_output":
            self._flush_images()
        if kind == "message":
            self._flush_calls()
            self._message(item)
        elif kind == "reasoning":
            self._reasoning(item)
        elif kind == "function_call" and not self.rules.join_calls:
            call = {"role": "assistant", "content": "", "tool_calls": [self._call(item.data)]}
            self.messages.append(Message(call, item.index))
        elif kind == "function_call":
            self.calls.append(self._call(item.data))
            self.callers.append(item.index)
        elif kind == "function_call_output":
            self._flush_calls()
            self._output(item)
        else:
            self.actions.append(
                Action("dropped", (item.index,), f"the server leaves out items of type {kind}")
            )

    def finish(self) -> None:
        self._flush_images()
        self._flush_calls()

    def _message(self, item: Message) -> None:
        given = str(item.data.get("role") or "user")
        role = "system" if given == "developer" else given
        data: dict[str, Any] = {"role": role, "content": self._content(item.content)}
        if role == "assistant" and self.reasoning:
            data["reasoning_content"], self.reasoning = self.reasoning, ""
        self.messages.append(item if item.data == data else Message(data, item.index))

    def _content(self, content: Any) -> Any:
        if self.rules.lists and isinstance(content, str) and content:
            return [{"type": "text", "text": content}]
        if not isinstance(content, list):
            return content if isinstance(content, str) else "" if content is None else str(content)
        parts: list[dict[str, Any]] = []
        for part in content:
            if isinstance(part, str):
                parts.append({"type": "text", "text": part})
            elif isinstance(part, Mapping) and part.get("type") in _TEXT_TYPES:
                parts.append({"type": "text", "text": part.get("text") or ""})
            elif isinstance(part, Mapping) and part.get("type") == "input_image" and self.rules.images:
                parts.append(_image(part))
        if self.rules.lists or any(part["type"] == "input_image" for part in parts):
            return parts
        texts = (part["text"] for part in parts)
        return self.rules.between_parts.join(text for text in texts if text or self.rules.empty_parts)

    def _reasoning(self, item: Message) -> None:
        summary = item.data.get("summary")
        if not self.rules.reasoning or not isinstance(summary, list):
            return
        texts = [str(part.get("text") or "") for part in summary if isinstance(part, Mapping)]
        self.reasoning = "\n".join(text for text in texts if text) or self.reasoning

    def _output(self, item: Message) -> None:
        output = item.data.get("output") or ""
        if self.rules.list_outputs == "json" and isinstance(output, list | Mapping):
            output = json.dumps(output)
        elif isinstance(output, list) and self.rules.list_outputs == "text":
            output = self._output_text(output, item.index)
        identity = item.data.get("call_id") or ""
        self.messages.append(
            Message({"role": "tool", "tool_call_id": identity, "content": output}, item.index)
        )

    def _output_text(self, output: list[Any], index: int) -> str:
        known = (*_TEXT_TYPES, "input_image")
        if not any(isinstance(part, Mapping) and part.get("type") in known for part in output):
            return json.dumps(output)
        texts: list[str] = []
        for part in output:
            if not isinstance(part, Mapping):
                texts.append(str(part))
            elif part.get("type") in _TEXT_TYPES:
                texts.append(str(part.get("text") or ""))
            elif part.get("type") != "input_image":
                texts.append(json.dumps(part))
            elif self.rules.images:
                self.images.append(_image(part))
                self.pictured = index
            else:
                texts.append("(see attached image)")
        return self.rules.between_parts.join(text for text in texts if text)

    def _flush_calls(self) -> None:
        """Give the waiting calls and reasoning to the assistant turn before them, or to a new one."""
        if not self.calls:
            return
        last = self.messages[-1] if self.messages else None
        extra: dict[str, Any] = {"tool_calls": self.calls}
        if self.reasoning and self.rules.calls_reason:
            extra["reasoning_content"], self.reasoning = self.reasoning, ""
        joins = self.rules.join_calls is True
        if joins and last is not None and last.role == "assistant" and "tool_calls" not in last.data:
            self.messages[-1] = last.replace(**extra)
        else:
            self.messages.append(Message({"role": "assistant", **extra}, self.callers[0]))
        self.actions.append(
            Action("converted", tuple(self.callers), "neighbouring function calls become one assistant turn")
        )
        self.calls, self.callers = [], []

    def _call(self, data: Mapping[str, Any]) -> dict[str, Any]:
        given = data.get("arguments")
        arguments = given if self.rules.raw_arguments else parsed_arguments(given or "{}")
        function = {"name": data.get("name") or "", "arguments": arguments}
        return {
            "id": data.get("call_id") or data.get("id") or "",
            "type": "function",
            "function": function,
        }

    def _flush_images(self) -> None:
        if self.images:
            self.messages.append(Message({"role": "user", "content": self.images}, self.pictured))
            self.images = []


def _image(part: Mapping[str, Any]) -> dict[str, Any]:
    url = part.get("image_url", part.get("url", ""))
    return {"type": "input_image", "image_url": url, "detail": part.get("detail", "auto")}
