"""Anthropic messages as OpenAI chat messages: the conversion that servers make on `/v1/messages`.

What the servers share is here: content blocks become texts, tool calls and tool results, the top-level system
text becomes the first message, `input_schema` becomes `parameters`. Where they differ, `AnthropicRules` says
how; its defaults are oMLX's (docs/servers.md, section 1; jundot/omlx, omlx/api/anthropic_utils.py). A policy
then applies its own rules to the system turns of the result.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ...conversation import SYSTEM_ROLES, TOP_LEVEL, Message, Request
from ...errors import RenderError
from ..base import Action, Prepared
from ..rewrite.tool_texts import call_line, result_prefix
from ..rewrite.user_notes import BOUNDARY_KEY

BILLING_HEADER = "x-anthropic-billing-header:"
#: Versioned types of tools that Anthropic's own machines run; a local server cannot offer them.
SERVER_TOOLS = ("web_search_", "code_execution_", "bash_", "text_editor_", "computer_")

_VOLATILE = "the server leaves out what changes with every request"

Block = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AnthropicRules:
    """How a server writes Anthropic messages as chat messages.

    Attributes:
        tool_role: whether tool calls and results keep their structure; else they become text in brackets.
        reasoning: what becomes of an assistant's thinking blocks: a field `reasoning_content`, a think block
            in the text, or nothing.
        images: whether images are kept, as `image_url` parts before the text; else they are left out.
        between_blocks: joins the texts of neighbouring blocks, of one message and of the system text.
        between_thoughts: joins the thinking blocks of one message, where they become a field.
        after_thinking: joins a think block and the text after it.
        split_results: whether, without `tool_role`, each tool result is a user turn of its own.
        results_last: whether all text of a user turn comes before its tool results; else each stays in its
            place.
        results_first: whether all text of a user turn comes after its tool results.
        parts: whether texts and images of a message stay a list, in order, unless it is one text; then a user
            turn without any vanishes, and the content of an assistant turn without any is None. Else texts
            are joined by `between_blocks`.
        result_parts: whether the texts of a tool result, without empty ones, stay a list unless it is one.
        empty_texts: whether empty texts count, where `parts` are kept.
        call_type: whether a tool call says `type: function`.
        marks_boundaries: whether turns made of tool calls and results carry `_preserve_role_boundary`.
        dropped_system: beginnings of blocks of the top-level system text that are left out.
        clean_system: what is done to the text of each system message; None where nothing is.
        document: returns the text of a document block, or None where the server leaves it out.
        needs_result: whether a request with a tool result without `content` is refused.
        no_description: the description of a tool without one.
        empty_blocks: whether text blocks of messages that have no text count as lines; else they are left
            out.
    """

    tool_role: bool = True
    reasoning: Literal["field", "inline", "dropped"] = "inline"
    images: bool = False
    between_blocks: str = "\n"
    between_thoughts: str = "\n"
    after_thinking: str = "\n\n"
    split_results: bool = True
    results_last: bool = False
    results_first: bool = False
    parts: bool = False
    result_parts: bool = False
    empty_texts: bool = True
    call_type: bool = True
    marks_boundaries: bool = False
    dropped_system: tuple[str, ...] = (BILLING_HEADER,)
    clean_system: Callable[[str], str] | None = None
    document: Callable[[Block], str | None] = lambda block: None
    needs_result: bool = False
    no_description: str | None = ""
    empty_blocks: bool = True


def convert_anthropic(request: Request, rules: AnthropicRules) -> Prepared:
    """Return a request of the dialect `anthropic-messages` in OpenAI chat form, and what was lost or changed.

    Several chat messages may have the index of one client's message. Neighbouring turns of one role are not
    joined, and system turns stay where they are.
    """
    actions: list[Action] = []
    messages: list[Message] = []
    system, dropped = _system_text(request.system, rules)
    if system:
        messages.append(Message({"role": "system", "content": system}, TOP_LEVEL))
        actions.append(
            Action("converted", (TOP_LEVEL,), "the top-level system text becomes the first message")
        )
    if dropped:
        actions.append(Action("dropped", (TOP_LEVEL,), _VOLATILE))
    for message in request.messages:
        turns, lost = _turns(message, rules)
        messages += turns
        if _is_cleaned(message, turns, rules):
            actions.append(Action("dropped", (message.index,), _VOLATILE))
        if lost:
            kinds = ", ".join(dict.fromkeys(lost))
            actions.append(Action("dropped", (message.index,), f"the server leaves out its blocks: {kinds}"))
        if len(turns) != 1 or turns[0].role != message.data.get("role"):
            roles = ", ".join(turn.role for turn in turns) or "nothing"
            actions.append(Action("converted", (message.index,), f"its blocks become turns: {roles}"))
    converted = request.replace(
        messages=tuple(messages),
        tools=anthropic_tools(request.tools, rules.no_description),
        system=None,
        dialect="openai-chat",
    )
    error = RenderError("HTTP 422", "a tool result has no content")
    refused = rules.needs_result and any(map(_lacks_result, request.messages))
    return Prepared(converted, tuple(actions), error=error if refused else None)


def _lacks_result(message: Message) -> bool:
    blocks = message.content if isinstance(message.content, list) else []
    results = [block for block in blocks if isinstance(block, Mapping) and block.get("type") == "tool_result"]
    return any("content" not in block for block in results)


def anthropic_tools(
    tools: Iterable[Mapping[str, Any]] | None, no_description: str | None = ""
) -> tuple[Mapping[str, Any], ...] | None:
    """Return Anthropic tools in OpenAI form, without those that Anthropic's machines run; None for none."""
    converted = tuple(
        {
            "type": "function",
            "function": {
                "name": tool.get("name", ""),
                "description": tool.get("description") or no_description,
                "parameters": tool.get("input_schema") or {},
            },
        }
        for tool in tools or ()
        if not str(tool.get("type") or "").startswith(SERVER_TOOLS)
    )
    return converted or None


def object_schema(tool: Mapping[str, Any]) -> Any:
    """Return an Anthropic tool's schema, with `type: object` where it names no type, as two servers do."""
    schema = tool.get("input_schema")
    return {**schema, "type": "object"} if isinstance(schema, Mapping) and "type" not in schema else schema


def result_text(content: Any, between: str = "\n") -> str:
    """Return the content of a tool result as text: the texts of a list of blocks joined, others left out."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = (item if isinstance(item, str) else _text(item) for item in content)
        return between.join(text for text in texts if text is not None)
    if isinstance(content, Mapping):
        text = _text(content)
        return json.dumps(content) if text is None else text
    return "" if content is None else str(content)


def one_text(parts: list[dict[str, Any]]) -> Any:
    """Return a list of content parts as it is, its text where it is one text, and None for none."""
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts or None


def image_part(block: Block) -> dict[str, Any] | None:
    """Return an Anthropic image block as an `image_url` part; None where it names no image."""
    source = block.get("source")
    if not isinstance(source, Mapping):
        return None
    if source.get("type") == "base64":
        url = f"data:{source.get('media_type', 'image/jpeg')};base64,{source.get('data', '')}"
    elif source.get("type") == "url":
        url = str(source.get("url", ""))
    else:
        return None
    return {"type": "image_url", "image_url": {"url": url}}


def _text(block: Any) -> str | None:
    if isinstance(block, Mapping) and block.get("type") == "text":
        text = block.get("text")
        return text if isinstance(text, str) else ""
    return None


def _system_text(system: Any, rules: AnthropicRules) -> tuple[str, bool]:
    """Return the top-level system text, and whether something of it was left out."""
    dropped = False
    if isinstance(system, list):
        texts = [text for block in system if (text := _text(block)) is not None]
        kept = [text for text in texts if not text.startswith(rules.dropped_system or ("\0",))]
        dropped = len(kept) < len(texts)
        given = rules.between_blocks.join(kept)
    else:
        given = system if isinstance(system, str) else ""
    text = rules.clean_system(given) if rules.clean_system else given
    return text, dropped or text != given


def _is_cleaned(message: Message, turns: list[Message], rules: AnthropicRules) -> bool:
    """Return whether the server took something out of a system turn's text."""
    if rules.clean_system is None or message.data.get("role") not in SYSTEM_ROLES:
        return False
    return bool(turns[0].content != result_text(message.content, rules.between_blocks))


@dataclass(slots=True)
class _Turn:
    """A chat message that grows block by block."""

    rules: AnthropicRules
    text: str | None = None
    images: list[dict[str, Any]] = field(default_factory=list)
    parts: list[dict[str, Any]] = field(default_factory=list)
    separator: str = ""

    def add(self, text: str, separator: str | None = None) -> None:
        if self.rules.parts:
            if text or self.rules.empty_texts:
                self.parts.append({"type": "text", "text": text})
            return
        self.text = text if self.text is None else f"{self.text}{self.separator}{text}"
        self.separator = self.rules.between_blocks if separator is None else separator

    def show(self, image: dict[str, Any]) -> None:
        (self.parts if self.rules.parts else self.images).append(image)

    def think(self, reasoning: str) -> None:
        self.add(f"<think>\n{reasoning}\n</think>", self.rules.after_thinking)

    @property
    def empty(self) -> bool:
        return self.text is None and not self.images and not self.parts

    @property
    def content(self) -> Any:
        if self.rules.parts:
            return one_text(self.parts)
        if not self.images:
            return self.text or ""
        texts = [] if self.text is None else [{"type": "text", "text": self.text}]
        return [*self.images, *texts]


def _turns(message: Message, rules: AnthropicRules) -> tuple[list[Message], list[str]]:
    """Return what one message becomes, and the types of the blocks that are lost."""
    role = str(message.data.get("role", ""))
    content = message.content
    if not isinstance(content, list):
        text = content if isinstance(content, str) else "" if content is None else str(content)
        return [_plain(message, role, text, rules)], []
    if role == "assistant":
        return _assistant(message, content, rules)
    return _other(message, role, content, rules)


def _plain(message: Message, role: str, text: str, rules: AnthropicRules) -> Message:
    """Return a message with role and text only; the very same one where it is that already."""
    if role in SYSTEM_ROLES and rules.clean_system:
        text = rules.clean_system(text)
    data = {"role": role, "content": text}
    return message if message.data == data else Message(data, message.index)


def _assistant(message: Message, blocks: list[Any], rules: AnthropicRules) -> tuple[list[Message], list[str]]:
    turn = _Turn(rules)
    calls: list[dict[str, Any]] = []
    thoughts: list[str] = []
    lost: list[str] = []
    bounded = False
    for block in blocks:
        if not isinstance(block, Mapping):
            continue
        kind = block.get("type")
        if kind == "tool_use" and rules.tool_role:
            calls.append(_call(block, rules))
        elif kind == "tool_use":
            turn.add(call_line(block.get("name", ""), json.dumps(block.get("input", {}))))
            bounded = True
        elif kind == "thinking" and rules.reasoning == "field":
            thoughts += [str(block["thinking"])] if block.get("thinking") else []
        elif not _common(block, turn, rules):
            lost.append(str(kind))
    data: dict[str, Any] = {"role": "assistant", "content": turn.content}
    if thoughts:
        data["reasoning_content"] = rules.between_thoughts.join(thoughts)
    if calls:
        data["tool_calls"] = calls
    if rules.marks_boundaries and (calls or bounded):
        data[BOUNDARY_KEY] = True
    return [Message(data, message.index)], lost


def _other(
    message: Message, role: str, blocks: list[Any], rules: AnthropicRules
) -> tuple[list[Message], list[str]]:
    """Return the turns of a user or system message: each tool result, and the texts between them."""
    turns: list[Message] = []
    results: list[Message] = []
    lost: list[str] = []
    turn = _Turn(rules)
    bounded = False
    for block in blocks:
        if not isinstance(block, Mapping):
            continue
        if block.get("type") != "tool_result" or role != "user":
            if not _common(block, turn, rules):
                lost.append(str(block.get("type")))
            continue
        if not rules.tool_role and not rules.split_results:
            turn.add(_flattened(block, rules))
            bounded = True
        elif rules.results_last:
            results.append(Message(_result(block, rules), message.index))
        elif rules.results_first:
            turns.append(Message(_result(block, rules), message.index))
        else:
            turns += [] if turn.empty else [Message({"role": role, "content": turn.content}, message.index)]
            turns.append(Message(_result(block, rules), message.index))
            turn = _Turn(rules)
        if isinstance(inner := block.get("content"), list):
            pictures = [item for item in inner if isinstance(item, Mapping) and item.get("type") == "image"]
            lost += [str(item["type"]) for item in pictures if not _common(item, turn, rules)]
    vanishes = rules.parts and role == "user"
    if not turn.empty or not (turns or results or vanishes):
        marked = {BOUNDARY_KEY: True} if bounded and rules.marks_boundaries else {}
        if isinstance(turn.content, list) or marked:
            turns.append(Message({"role": role, "content": turn.content, **marked}, message.index))
        else:
            turns.append(_plain(message, role, turn.content or "", rules))
    return turns + results, lost


def _common(block: Block, turn: _Turn, rules: AnthropicRules) -> bool:
    """Add a block that all roles may have; return whether the server keeps it."""
    kind = block.get("type")
    if (text := _text(block)) is not None:
        if text or rules.empty_blocks:
            turn.add(text)
        return True
    if kind == "image" and rules.images and (part := image_part(block)):
        turn.show(part)
        return True
    if kind == "thinking" and rules.reasoning == "inline":
        if block.get("thinking"):
            turn.think(str(block["thinking"]))
        return True
    if kind == "document" and (text := rules.document(block)) is not None:
        turn.add(text)
        return True
    return False


def _call(block: Block, rules: AnthropicRules) -> dict[str, Any]:
    arguments = block.get("input", {})
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError, RecursionError):
            arguments = json.loads(arguments)
    call = {"id": block.get("id", ""), "type": "function"}
    function = {"name": block.get("name", ""), "arguments": arguments}
    return {**(call if rules.call_type else {"id": call["id"]}), "function": function}


def _result(block: Block, rules: AnthropicRules) -> dict[str, Any]:
    if rules.tool_role:
        content = block.get("content")
        if rules.result_parts and isinstance(content, list):
            texts = [text for item in content if (text := _text(item))]
            given = one_text([{"type": "text", "text": text} for text in texts]) or ""
        else:
            given = result_text(content, rules.between_blocks)
        return {"role": "tool", "tool_call_id": block.get("tool_use_id", ""), "content": given}
    marked = {BOUNDARY_KEY: True} if rules.marks_boundaries else {}
    return {"role": "user", "content": _flattened(block, rules), **marked}


def _flattened(block: Block, rules: AnthropicRules) -> str:
    kind = "Error" if block.get("is_error") else "Result"
    text = result_text(block.get("content"), rules.between_blocks)
    return f"{result_prefix(block.get('tool_use_id', ''), kind)}{text}"
