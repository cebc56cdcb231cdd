"""SGLang's way from chat messages to the template, which all its routes end in.

Read and run: `sglang/srt/entrypoints/openai/serving_chat.py` (`_apply_jinja_template`), `protocol.py` beside
it and `sglang/srt/parser/jinja_template_utils.py`, 0.5.23 (docs/servers.md, section 11). Models with an
encoder of their own (gpt-oss on `/v1/responses`, DeepSeek V3.2 and V4, Kimi K3) and images are not modelled.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ...conversation import Message, Request
from ...errors import RenderError
from ...templates.template import ChatTemplate
from ..base import Action, Messages, Prepared, Retry, Rewrite
from ..rewrite.part_texts import as_one_text, is_text_part
from ..rewrite.reasoning import template_text
from ..rewrite.system_turns import each_changed, has_role
from ..rewrite.tool_arguments import with_calls

#: Words that make the server take a template for one that reads lists of parts.
_MEDIA = ("image", "audio", "video", "vision")
#: Keys of messages that the server hands on, in the order in which it writes them.
_KEPT = (
    "role",
    "content",
    "tool_call_id",
    "name",
    "phase",
    "reasoning_content",
    "tool_calls",
    "tools",
    "prefix",
)


def takes_lists(template: ChatTemplate) -> bool:
    """Return whether contents stay lists of parts; else their texts are joined by spaces."""
    text = template_text(template)
    if any(word in text for word in _MEDIA):
        return True
    try:
        return template.choose(None).content_loops.named
    except RenderError:
        return False


def to_template(start: Prepared, template: ChatTemplate) -> Prepared:
    """Return what the template gets of a request in OpenAI chat form, and the server's second try."""
    lists = takes_lists(template)
    done = start.then(_known_keys).then(_parsed_arguments)
    if done.request.messages and (why := _bad_arguments(done.request.messages)):
        return done.refused(400, why)
    done = done.then(lambda messages: _in_form(messages, lists)).then(_answer_as_question)
    tools = done.request.tools
    if not tools:
        return replace(done, request=done.request.replace(tools=None))
    flat = done.request.replace(tools=tuple(tool["function"] for tool in tools))
    why = "the server tries again with tools without their wrapper"
    return replace(done, retries=(Retry(flat, Action("retried", (), why), final=True),))


def chat_tools(tools: Iterable[Mapping[str, Any]] | None) -> tuple[Mapping[str, Any], ...] | None:
    """Return tools in chat form as the server writes them: null where a description or schema is missing."""
    return tuple(map(_chat_tool, tools)) if tools else None


def _chat_tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    given = tool.get("function")
    function = dict(given) if isinstance(given, Mapping) else {}
    deferred = tool.get("defer_loading")
    if deferred is not None and function.get("defer_loading") is None:
        function["defer_loading"] = deferred
    known = ("description", "name", "parameters", "strict", "defer_loading")
    written = {key: value for key, value in function.items() if key in known}
    for key in ("strict", "defer_loading"):
        if written.get(key, 0) is None:
            del written[key]
    for key in ("description", "parameters"):
        written.setdefault(key, None)
    return {"type": tool.get("type", "function"), "function": written, "defer_loading": deferred}


def settings(request: Request, template: ChatTemplate, effort: Any, thinks: bool) -> Mapping[str, Any]:
    """Return the kwargs that a reasoning effort becomes, under the request's own.

    Args:
        request: for its chat-template kwargs, which win.
        template: two words of it tell a model that has one lower effort.
        effort: what the body says, or None.
        thinks: whether an effort also says that the model thinks, which it does unless it is `none`.
    """
    kwargs: dict[str, Any] = {}
    if effort is not None:
        kwargs["reasoning_effort"] = effort
        if thinks:
            kwargs["thinking"] = kwargs["enable_thinking"] = effort != "none"
    text = template_text(template)
    if request.kwargs.get("reasoning_effort", effort) == "low" and "truncate_history_thinking" in text:
        kwargs |= {"low_effort": True} if "low_effort" in text else {}
    return kwargs


def _known_keys(messages: Messages) -> Rewrite:
    return each_changed(
        messages, _with_known_keys, "converted", "keys that the server does not know are left out"
    )


def _with_known_keys(message: Message) -> Message:
    data = message.data
    kept = ("role", "content") if has_role(message, "user") else _KEPT
    new = {key: data[key] for key in kept if data.get(key) is not None}
    if new.get("content") is None:
        new["content"] = ""
    elif isinstance(new["content"], list):
        new["content"] = [_plain_part(part) for part in new["content"]]
    return message if new == data else Message(new, message.index, message.pieces)


def _plain_part(part: Any) -> Any:
    return {"type": "text", "text": part["text"]} if is_text_part(part) else part


def _parsed_arguments(messages: Messages) -> Rewrite:
    why = "the arguments of its tool calls are parsed from JSON"
    return each_changed(messages, lambda message: with_calls(message, _parsed), "converted", why)


def _parsed(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"])
    except (ValueError, RecursionError):
        return call
    if not isinstance(arguments, dict):
        return call
    return {**call, "function": {**function, "arguments": arguments}}


def _bad_arguments(messages: Messages) -> str:
    """Return why the server refuses what is still a text after parsing; empty where nothing is."""
    for message in messages:
        for call in calls if isinstance(calls := message.data.get("tool_calls"), list) else ():
            function = call.get("function") if isinstance(call, Mapping) else None
            if isinstance(function, Mapping) and isinstance(function.get("arguments"), str):
                return "the arguments of a tool call in the history are no JSON object"
    return ""


def _in_form(messages: Messages, lists: bool) -> Rewrite:
    why = "its texts become one, joined by spaces"
    return each_changed(messages, lambda message: _formed(message, lists), "converted", why)


def _formed(message: Message, lists: bool) -> Message:
    content = message.content
    if not isinstance(content, list) or not all(map(is_text_part, content)):
        return message
    return message if lists and not has_role(message, "tool") else as_one_text(message, " ")


def _answer_as_question(messages: Messages) -> Rewrite:
    """Make a user turn of an assistant's text that stands last, as the server does unless it is continued."""
    last = messages[-1] if messages else None
    if last is None or not has_role(last, "assistant") or not isinstance(last.content, str):
        return Rewrite(messages)
    turned = Message({"role": "user", "content": last.content}, last.index, last.pieces)
    why = "an assistant turn that is last becomes a user turn"
    return Rewrite((*messages[:-1], turned), (Action("converted", (last.index,), why),))
