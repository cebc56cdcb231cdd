"""The tool contract: what MTPLX adds to the first system turn of a request with tools.

The wording is the server's own (youssofal/MTPLX, mtplx/server/openai.py, `_mtplx_tool_contract_text`), with
the day on which the server began to be busy, so that it may change from one day to the next.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

SENTINEL = "MTPLX tool contract:"
_MOST_CHARACTERS = 1200
_MOST_PROPERTIES = 8
_MOST_VALUES = 4

Tool = Mapping[str, Any]


def tool_contract(tools: Sequence[Tool], now: datetime) -> str:
    """Return the contract for some tools, in OpenAI form, as of a day."""
    return (
        f"{SENTINEL} Today's date is {now.strftime('%B %d, %Y')}. Your training data ends before today; "
        "treat tool results as more current than your own knowledge. "
        f"Declared tools and schemas: {_declared(tools)}. "
        "Call only these exact tool names and exact argument keys/case. Include every required key shown in "
        "the signature. Read a file in ONE call with no offset/limit unless it is huge (thousands of lines); "
        "page only huge files, in large ranges (hundreds of lines), and never re-read a file in small slices."
        " For an edit call, oldString must be copied verbatim from the current file content (exact "
        "whitespace) and must differ from newString; an edit missing oldString is invalid. "
        "Emit tool calls using the Qwen native XML format shown by the chat template, "
        f"for example: {_example(tools[0])}. Do not put a JSON object inside <tool_call>. "
        "Never print file contents, code blocks, patches, or implementation output in reasoning/thinking or "
        "in your visible text — file content belongs only inside the declared write/edit tool call "
        "arguments, written exactly once. Before tool calls, write at most one short sentence of visible "
        "text. Never invent Agent/task/Explore or any undeclared tool. If no declared tool applies, answer "
        "normally."
    )


def _declared(tools: Iterable[Tool]) -> str:
    """Return the tools' signatures; once they are too long, names alone where a signature does not fit."""
    pairs = [(_signature(tool), _name(tool)) for tool in tools]
    whole = "; ".join(signature for signature, _ in pairs)
    if len(whole) <= _MOST_CHARACTERS:
        return whole
    text = ""
    for signature, name in pairs:
        joint = "; " if text else ""
        fits = len(text) + len(joint) + len(signature) <= _MOST_CHARACTERS
        text += joint + (signature if fits else name)
    return text


def _name(tool: Tool) -> str:
    return str(tool["function"]["name"]).strip()


def _schema(tool: Tool) -> Mapping[str, Any]:
    schema = tool["function"].get("parameters")
    return schema if isinstance(schema, Mapping) else {}


def _required(schema: Mapping[str, Any]) -> list[str]:
    required = schema.get("required")
    return [str(name) for name in required] if isinstance(required, list) else []


def _signature(tool: Tool) -> str:
    schema = _schema(tool)
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return f"{_name(tool)}()"
    required = _required(schema)
    names = list(dict.fromkeys([*(name for name in required if name in properties), *properties]))
    parts = [
        f"{name}{'' if name in required else '?'}:{_label(properties[name])}"
        for name in names[:_MOST_PROPERTIES]
    ]
    return f"{_name(tool)}({', '.join(parts + ['...'] * (len(names) > _MOST_PROPERTIES))})"


def _label(schema: Any) -> str:
    """Return a type in few characters."""
    if not isinstance(schema, Mapping):
        return "any"
    if isinstance(values := schema.get("enum"), list) and values:
        return "|".join(map(str, values[:_MOST_VALUES])) + ("|..." if len(values) > _MOST_VALUES else "")
    for key in ("anyOf", "oneOf"):
        if isinstance(variants := schema.get(key), list) and variants:
            return "|".join(map(_label, variants[:3]))
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((item for item in kind if item != "null"), kind[0] if kind else None)
    if kind == "array":
        return f"{_label(schema.get('items'))}[]"
    return kind if isinstance(kind, str) and kind else "any"


def _example(tool: Tool) -> str:
    """Return a call of a tool with its first three required properties, or any if it requires none."""
    schema = _schema(tool)
    properties = schema.get("properties")
    lines = [f"<function={_name(tool)}>"]
    if isinstance(properties, Mapping):
        for name in (_required(schema) or list(properties))[:3]:
            if name in properties:
                lines += [f"<parameter={name}>", _value(properties[name]), "</parameter>"]
    return "\n".join(["<tool_call>", *lines, "</function>", "</tool_call>"])


def _value(schema: Any) -> str:
    """Return a value of a schema's type as the example shows it."""
    kinds = schema.get("type") if isinstance(schema, Mapping) else None
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if "array" in kinds:
        items = schema.get("items")
        names = items.get("properties") if isinstance(items, Mapping) else None
        if not (isinstance(names, Mapping) and names):
            return '["ARGUMENT_VALUE"]'
        shown = (_required(items) or list(names))[:2]
        return json.dumps([dict.fromkeys(shown, "ARGUMENT_VALUE")], ensure_ascii=False)
    for kind, value in (("object", "{}"), ("boolean", "true"), ("integer", "0"), ("number", "0")):
        if kind in kinds:
            return value
    return "ARGUMENT_VALUE"
