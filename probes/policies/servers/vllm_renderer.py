"""vLLM's renderer: what the messages of all routes go through before the chat template sees them.

Read and run: `vllm/renderers/hf.py`, `vllm/renderers/chat_utils/chat_message.py`, `vllm/renderers/params.py`
and the models of the routes' requests, 0.33.0 (docs/servers.md, section 10). Models with a renderer of their
own (gpt-oss, Mistral's tokenizers, DeepSeek V3.2 and V4, Kimi K3) and images are not modelled.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ...conversation import Message, Request
from ...errors import RenderError
from ...templates.template import ChatTemplate
from ..base import Action, Messages, Prepared, Rewrite
from ..rewrite.part_texts import (
    as_one_text,
    as_system,
    as_text_list,
    is_text_part,
    merge_into_first,
    part_texts,
    whole_text,
)
from ..rewrite.system_turns import each_changed, has_role, is_system
from ..rewrite.texts import Text, content_text, join, part_text, rebuilt
from ..rewrite.tool_arguments import with_calls

BILLING_HEADER = "x-anthropic-billing-header"
#: Keys of messages that the renderer hands on, beside those of the roles.
_KEPT = ("role", "content", "name", "task")
_KEPT_OF = {
    "assistant": ("tool_calls", "reasoning", "reasoning_content"),
    "tool": ("tool_call_id",),
    "developer": ("tools",),
}
_UNSET = (None, "auto")


def takes_lists(template: ChatTemplate, request: Request, form: str = "auto") -> bool:
    """Return whether contents become lists of parts; else they become texts.

    Args:
        template: the template; one that cannot be parsed gets texts.
        request: its tools choose one of several named templates.
        form: what `--chat-template-content-format` says.
    """
    if form != "auto":
        return form == "openai"
    try:
        return template.choose(request.tools).content_loops.followed
    except RenderError:
        return False


def through_renderer(start: Prepared, template: ChatTemplate, lists: bool) -> Prepared:
    """Return what the renderer makes of a request in OpenAI chat form."""
    done = start.then(_without_billing).then(_arguments).then(_known_keys)
    done = done.then(lambda messages: _in_form(messages, lists))
    return done.then(lambda messages: _developers(messages, template, done.request))


def with_settings(
    start: Prepared, *, effort: Any, add_generation_prompt: bool = True, partial: bool = False
) -> Prepared:
    """Return a prepared request with the chat-template kwargs that the server makes of the body's fields.

    What the body says beside its `chat_template_kwargs` replaces what those say; null and "auto" say nothing.

    Args:
        start: what was prepared so far.
        effort: the reasoning effort, or None.
        add_generation_prompt: whether the body wants an assistant turn opened.
        partial: whether the last message is continued.
    """
    own = start.request.kwargs
    kwargs = {name: value for name, value in own.items() if value not in _UNSET}
    added: dict[str, Any] = {}
    if effort is not None:
        added["reasoning_effort"] = effort
        if "enable_thinking" not in own:
            added["enable_thinking"] = effort != "none"
    if not add_generation_prompt and not partial:
        added["add_generation_prompt"] = False
    for name in ("add_generation_prompt", "continue_final_message"):
        kwargs.pop(name, None)
    actions = start.actions
    if added:
        what = ", ".join(f"{name}={value!r}" for name, value in added.items())
        actions = (*actions, Action("kwargs", (), f"{what}: from other fields of the request"))
    request = start.request.replace(kwargs={**kwargs, **added}, partial=partial)
    return replace(start, request=request, actions=actions)


def function_tool(function: Mapping[str, Any], parameters: Any) -> dict[str, Any]:
    """Return a tool as the server writes it: description and parameters are null where not given."""
    written = {
        "name": function.get("name"),
        "description": function.get("description"),
        "parameters": parameters,
    }
    for key in ("strict", "defer_loading"):
        if function.get(key) is not None:
            written[key] = function[key]
    return {"type": "function", "function": written}


def chat_tools(tools: Iterable[Mapping[str, Any]] | None) -> tuple[Mapping[str, Any], ...] | None:
    """Return the tools of a chat request as the template gets them."""
    if tools is None:
        return None
    written = []
    for tool in tools:
        function = tool.get("function")
        function = function if isinstance(function, Mapping) else {}
        if (deferred := tool.get("defer_loading")) is not None:
            function = {"defer_loading": deferred, **function}
        written.append(function_tool(function, function.get("parameters")))
        if deferred is not None:
            written[-1]["defer_loading"] = deferred
    return tuple(written)


def _without_billing(messages: Messages) -> Rewrite:
    why = "the server leaves out Claude Code's billing line, which changes with every request"
    return each_changed(messages, _unbilled, "dropped", why)


def _unbilled(message: Message) -> Message:
    content = message.content
    if not has_role(message, "system"):
        return message
    if isinstance(content, str) and content.startswith(BILLING_HEADER):
        text = _rest(content_text(message, None, content))
        return rebuilt(message, text.text, text.pieces())
    if isinstance(content, list) and any(map(_is_billed, content)):
        parts = [_unbilled_part(part) for part in content]
        return message.replace(content=[part for part in parts if part])
    return message


def _rest(text: Text) -> Text:
    """Return a text without its first line."""
    end = len(text.text.partition("\n")[0])
    return text.cut(min(end + 1, len(text.text)), len(text.text))


def _is_billed(part: Any) -> bool:
    return (part_text(part) or "").startswith(BILLING_HEADER)


def _unbilled_part(part: Any) -> Any:
    """Return a part without its first line if that is the billing line; nothing where no other is left."""
    if not _is_billed(part):
        return part
    rest = (part_text(part) or "").partition("\n")[2]
    return rest if isinstance(part, str) else {**part, "text": rest} if rest else None


def _arguments(messages: Messages) -> Rewrite:
    why = "the arguments of its tool calls are parsed from JSON; what is no object becomes an empty one"
    return each_changed(messages, lambda message: with_calls(message, _parsed), "converted", why)


def _parsed(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or isinstance(function.get("arguments"), dict):
        return call
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = {}
    return {**call, "function": {**function, "arguments": arguments if isinstance(arguments, dict) else {}}}


def _known_keys(messages: Messages) -> Rewrite:
    """Keep the keys that the renderer knows; reasoning gets both of its names."""
    return each_changed(
        messages, _with_known_keys, "converted", "keys that the server does not know are left out"
    )


def _with_known_keys(message: Message) -> Message:
    data = message.data
    kept = (*_KEPT, *_KEPT_OF.get(message.role, ()))
    new = {
        key: value for key, value in data.items() if key in kept and (key == "content" or value is not None)
    }
    if not new.get("tool_calls", True):
        del new["tool_calls"]
    return message if new == data else Message(new, message.index, message.pieces)


def _in_form(messages: Messages, lists: bool) -> Rewrite:
    if lists:
        return Rewrite(tuple(map(_as_list, messages)))
    why = "the template reads texts, so its parts become one, joined by line breaks"
    done = each_changed(messages, _as_text, "converted", why)
    return Rewrite(
        tuple(each.replace(content="") if each.content is None else each for each in done.messages),
        done.actions,
    )


def _as_text(message: Message) -> Message:
    content = message.content
    if not isinstance(content, list) or not all(map(_is_text, content)):
        return message
    text = join([text for text in part_texts(_plain_parts(message)) if text], "\n")
    return rebuilt(message, text.text, text.pieces())


def _as_list(message: Message) -> Message:
    listed = as_text_list(_plain_parts(message))
    if has_role(message, "tool") and all(map(is_text_part, listed.content)):
        return as_one_text(listed, "\n")
    return listed


def _plain_parts(message: Message) -> Message:
    """Return a message whose texts of all types are parts of type `text`; null ones are left out."""
    content = message.content
    if not isinstance(content, list):
        return message
    parts = [_plain_part(part) for part in content if not (_is_text(part) and _written(part) is None)]
    return message if parts == content else message.replace(content=parts)


_TEXTS = ("text", "input_text", "output_text", "refusal", "thinking")


def _is_text(part: Any) -> bool:
    return isinstance(part, str) or (isinstance(part, Mapping) and part.get("type") in _TEXTS)


def _written(part: Any) -> Any:
    if isinstance(part, str):
        return part
    kind = part.get("type")
    return part.get(kind if kind in ("refusal", "thinking") else "text")


def _plain_part(part: Any) -> Any:
    if not _is_text(part):
        return part
    return {"type": "text", "text": _written(part)}


def _developers(messages: Messages, template: ChatTemplate, request: Request) -> Rewrite:
    """Join all system turns in front where there is a developer that the template does not name."""
    if not any(has_role(message, "developer") for message in messages):
        return Rewrite(messages)
    try:
        text = template.choose(request.tools).text
    except RenderError:
        text = ""
    if '"developer"' in text or "'developer'" in text:
        return Rewrite(messages)
    turned = as_system(messages)
    if not any(map(is_system, turned.messages[1:])):
        return turned
    return turned.then(_joined_in_front)


def _joined_in_front(messages: Messages) -> Rewrite:
    why = "the template does not know developer, so all system turns are joined in front, by an empty line"
    merged = merge_into_first(messages, whole_text, "\n\n", why)
    if merged.messages and is_system(merged.messages[0]):
        return merged
    first = next(message for message in messages if is_system(message))
    empty = Message({"role": "system", "content": ""}, first.index)
    return Rewrite((empty, *merged.messages), merged.actions)
