"""OpenAI chat messages as oMLX's extraction leaves them, before anything is done to the system turns.

Contents become texts, `developer` becomes `system`, tool-call arguments become dicts, and for a template
without a tool role calls and results become text in brackets (docs/servers.md, section 1; jundot/omlx,
omlx/api/utils.py). The forks of oMLX share it.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...conversation import Message, Piece
from ...errors import RenderError
from ...templates.template import ChatTemplate
from ..base import Action, Messages, Prepared, Rewrite
from ..rewrite.reasoning import template_text, with_reasoning
from ..rewrite.system_turns import has_role
from ..rewrite.texts import Text, cover, flat_text, join, rebuilt
from ..rewrite.tool_arguments import with_calls
from ..rewrite.tool_texts import call_lines, result_prefix
from ..rewrite.user_notes import BOUNDARY_KEY
from .anthropic_route import image_part

_TOOL_ROLE = re.compile(r"==\s*['\"]tool['\"]")
#: Words, all of one tuple in a template, by which mlx-lm 0.32 finds a parser for the model's tool calls.
_PARSERS = (
    ("<minimax:tool_call>",),
    ("<|tool_call>", "<tool_call|>"),
    ("<start_function_call>",),
    ("<longcat_tool_call>",),
    ("<arg_key>",),
    ("<|tool_list_start|>",),
    ("<|tool_call_start|>",),
    ("<tool_call>\\n<function=",),
    ("<tool_call>\n<function=",),
    ("<|tool_calls_section_begin|>",),
    ('<function name="', '<param name="'),
    ("[TOOL_CALLS]",),
    ("<atem:function_calls>",),
    ("<tool_call>", "tool_call.name"),
)
_EMPTY_SCHEMA: Mapping[str, Any] = {"type": "object", "properties": {}}
#: Keywords of JSON Schema whose values are schemas, or lists of schemas.
_SCHEMA_KEYS = frozenset(
    ("items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else")
)
_SCHEMA_LISTS = frozenset(("oneOf", "anyOf", "allOf", "prefixItems"))


@dataclass(frozen=True, slots=True)
class ChatRules:
    """How a route of the server extracts chat messages.

    Attributes:
        tool_role: whether tool calls and results keep their structure.
        reasoning: `native` and `inline` as in `with_reasoning`; `field` leaves reasoning and text as they
            are.
        images: the multimodal extraction: a content with an image or audio stays a list.
        drop_void: assistant turns without anything in them are removed.
    """

    tool_role: bool = True
    reasoning: Literal["native", "inline", "field"] = "inline"
    images: bool = False
    drop_void: bool = True


def supports_tools(template: ChatTemplate | None) -> bool:
    """Return whether the server hands tool calls and results to the template in their structure.

    Either mlx-lm knows how to parse the model's tool calls, or the template compares a role with `tool` and
    mentions `tool_calls`.
    """
    text = template_text(template)
    return has_tool_parser(template) or (bool(_TOOL_ROLE.search(text)) and "tool_calls" in text)


def has_tool_parser(template: ChatTemplate | None) -> bool:
    """Return whether mlx-lm knows how to parse the model's tool calls, by words in the template's source.

    What mlx-lm reads off a vocabulary is not seen here.
    """
    text = template_text(template)
    return any(all(word in text for word in words) for words in _PARSERS)


def parsed_arguments(arguments: Any) -> Any:
    """Return tool-call arguments parsed where they are the JSON text of an object or array, else trimmed."""
    if not isinstance(arguments, str):
        return arguments
    text = arguments.strip()
    if not text.startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def with_checked_arguments(start: Prepared) -> Prepared:
    """Return a request with the arguments of tool calls as the JSON text of an object, an empty text as `{}`.

    The server refuses anything else (omlx/api/openai_models.py, `_coerce_tool_call_arguments`).
    """
    refused: list[str] = []

    def change(call: Any) -> Any:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or "arguments" not in function:
            return call
        given = function["arguments"]
        text = _object_text(given)
        if text is None:
            refused.append(str(given))
        return call if text in (given, None) else {**call, "function": {**function, "arguments": text}}

    checked = tuple(with_calls(message, change) for message in start.request.messages)
    after = dataclasses.replace(start, request=start.request.replace(messages=checked))
    if not refused:
        return after
    error = RenderError("HTTP 422", f"the arguments of a tool call are no JSON object: {refused[0]!r}")
    return dataclasses.replace(after, error=error)


def _object_text(arguments: Any) -> str | None:
    """Return arguments as the JSON text of an object; None where they are none."""
    if isinstance(arguments, Mapping):
        return json.dumps(arguments, ensure_ascii=False)
    if not isinstance(arguments, str):
        return None
    if not arguments.strip():
        return "{}"
    try:
        return arguments if isinstance(json.loads(arguments), dict) else None
    except (ValueError, RecursionError):
        return None


def template_tools(
    tools: Iterable[Mapping[str, Any]] | None, *, describe: bool = True
) -> tuple[Mapping[str, Any], ...] | None:
    """Return function tools with name, description and parameters only, in this order; None for none.

    Args:
        tools: the tools in OpenAI form.
        describe: whether every schema of a property, and within one, gets a description, if only an empty
            one; else a null stays, too.
    """
    converted = []
    for tool in tools or ():
        function = tool.get("function")
        if tool.get("type", "function") == "function" and isinstance(function, Mapping) and function:
            description, parameters = function.get("description", ""), function.get("parameters")
            if describe:
                parameters = _described(_EMPTY_SCHEMA if parameters is None else parameters, False)
            elif "parameters" not in function:
                parameters = _EMPTY_SCHEMA
            kept = {
                "name": function.get("name", ""),
                "description": (description or "") if describe else description,
                "parameters": parameters,
            }
            converted.append({"type": "function", "function": kept})
    return tuple(converted) or None


def _described(value: Any, is_schema: bool) -> Any:
    """Return JSON with an empty description in each schema that has none, but for the outermost."""
    if isinstance(value, list):
        return [_described(item, False) for item in value]
    if not isinstance(value, Mapping):
        return value
    copied = {key: _described_value(key, child) for key, child in value.items()}
    if is_schema:
        told = copied.get("description")
        copied["description"] = "" if told is None else str(told)
    return copied


def _described_value(key: str, value: Any) -> Any:
    if key == "properties" and isinstance(value, Mapping):
        return {name: _described(schema, True) for name, schema in value.items()}
    if key in _SCHEMA_LISTS and isinstance(value, list):
        return [_described(schema, True) for schema in value]
    return _described(value, key in _SCHEMA_KEYS)


def extract(messages: Messages, rules: ChatRules) -> Rewrite:
    """Return the messages as the server's extraction leaves them; neighbouring roles are not joined yet."""
    output: list[Message] = []
    converted: list[int] = []
    actions: list[Action] = []
    for message in messages:
        after = _extracted(message, rules)
        if rules.drop_void and is_void(after):
            actions.append(Action("dropped", (message.index,), "an assistant turn without anything in it"))
            continue
        if lost := _lost_parts(message, rules):
            why = f"the server leaves out its parts: {', '.join(lost)}"
            actions.append(Action("dropped", (message.index,), why))
        if after.role != message.data.get("role") and not has_role(message, "developer"):
            converted.append(message.index)
        output.append(message if after.data == message.data else after)
    if converted:
        why = "tool results become user turns, because the template has no tool role"
        actions.append(Action("converted", tuple(converted), why))
    return Rewrite(tuple(output), tuple(actions))


def _extracted(message: Message, rules: ChatRules) -> Message:
    role = str(message.data.get("role", ""))
    if role == "tool":
        return _result(message, rules)
    text: Text | None = None
    extra: dict[str, Any] = {}
    if role == "assistant" and rules.reasoning != "field":
        text, reasoning = with_reasoning(message, rules.reasoning == "native")
        extra = {"reasoning_content": reasoning} if reasoning else {}
    elif reasoning := message.data.get("reasoning_content"):
        extra = {"reasoning_content": reasoning} if role == "assistant" else {}
    if message.data.get("name"):
        extra["name"] = message.data["name"]
    calls = message.data.get("tool_calls")
    if role == "assistant" and isinstance(calls, list) and calls:
        return _calling(message, text or flat_text(message), extra, calls, rules)
    if text is None and rules.images and (parts := _media_parts(message)):
        pieces = tuple(piece for number, _, kept in parts for piece in _renumbered(message, number, kept))
        own = all(piece.message == message.index for piece in pieces)
        data = {"role": _role(role), "content": [part for _, part, _ in parts], **extra}
        return Message(data, message.index, () if own else pieces)
    return _plain(message, _role(role), flat_text(message) if text is None else text, extra)


def _role(role: str) -> str:
    return "system" if role == "developer" else role


def _plain(message: Message, role: str, text: Text, extra: Mapping[str, Any]) -> Message:
    own = Message({"role": role, "content": "", **extra}, message.index)
    return rebuilt(own, text.text, text.pieces())


def _result(message: Message, rules: ChatRules) -> Message:
    identity = message.data.get("tool_call_id") or ""
    text = flat_text(message)
    if rules.tool_role:
        return rebuilt(
            Message({"role": "tool", "tool_call_id": identity, "content": ""}, message.index),
            text.text,
            text.pieces(),
        )
    before = Text(result_prefix(identity), ((0, message.index),))
    return _plain(message, "user", join((before, text), ""), {BOUNDARY_KEY: True})


def _calling(
    message: Message, text: Text, extra: Mapping[str, Any], calls: list[Any], rules: ChatRules
) -> Message:
    known = [call for call in calls if isinstance(call, Mapping)]
    functions = [call.get("function") for call in known]
    named = [function if isinstance(function, Mapping) else {} for function in functions]
    if rules.tool_role:
        structured = [
            {
                "id": call.get("id", ""),
                "function": {
                    "name": function.get("name", ""),
                    "arguments": parsed_arguments(function.get("arguments", "{}")),
                },
            }
            for call, function in zip(known, named, strict=True)
        ]
        return _plain(message, "assistant", text, {**extra, "tool_calls": structured, BOUNDARY_KEY: True})
    written = [Text(line, ((0, message.index),)) for line in call_lines(known)]
    whole = join((text, *written) if text or not written else written, "\n")
    return _plain(message, "assistant", whole, {**extra, BOUNDARY_KEY: True})


def _media_parts(message: Message) -> list[tuple[int, dict[str, Any], int]]:
    """Return the parts that the multimodal extraction keeps, each with its number before and after.

    Empty where none of them is an image or a sound: such a content becomes a text.
    """
    if not isinstance(message.content, list):
        return []
    parts = [(number, _media_part(part)) for number, part in enumerate(message.content)]
    kept = [(number, part) for number, part in parts if part is not None]
    if all(part["type"] == "text" for _, part in kept):
        return []
    return [(number, part, place) for place, (number, part) in enumerate(kept)]


def _media_part(part: Any) -> dict[str, Any] | None:
    if not isinstance(part, Mapping):
        return None
    kind = part.get("type")
    if kind in ("text", "input_text"):
        return {"type": "text", "text": part.get("text") or part.get("content") or ""}
    if kind in ("image_url", "input_image"):
        image = part.get("image_url", part.get("input_image"))
        url = image.get("url") if isinstance(image, Mapping) else image
        return {"type": "image_url", "image_url": {"url": url}} if isinstance(url, str) and url else None
    if kind == "image":
        return image_part(part)
    if kind == "input_audio" and isinstance(part.get("input_audio"), Mapping):
        return {"type": "input_audio", "input_audio": part["input_audio"]}
    return None


def _renumbered(message: Message, number: int, kept: int) -> Iterator[Piece]:
    return (dataclasses.replace(piece, part=kept) for piece in cover(message) if piece.part == number)


def _lost_parts(message: Message, rules: ChatRules) -> list[str]:
    """Return the types of the content parts that do not reach the template."""
    if not isinstance(message.content, list):
        return []
    multimodal = rules.images and not has_role(message, "tool") and bool(_media_parts(message))
    lost = []
    for part in message.content:
        kind = part.get("type") if isinstance(part, Mapping) else None
        kept = _media_part(part) is not None if multimodal else isinstance(part, str) or kind == "text"
        if not kept:
            lost.append(str(kind))
    return list(dict.fromkeys(lost))


def is_void(message: Message) -> bool:
    """Tell whether a message is an assistant turn without anything in it."""
    keys = ("content", "tool_calls", "tool_responses", "reasoning_content")
    return has_role(message, "assistant") and not any(message.data.get(key) for key in keys)
