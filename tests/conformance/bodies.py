"""Random request bodies of the three routes, as clients may send them: seeded, so that a run can be repeated.

Every role, place of a system turn, form of content, list of tools, form of arguments, empty value, field for
effort and thinking occurs, and trailing assistant turns. Most bodies are plain; the rare forms come one or
two at a time, so that a difference says which it is.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any, Literal

Route = Literal["chat", "messages", "responses"]
ROUTES: tuple[Route, ...] = ("chat", "messages", "responses")
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_WORDS = "river stone lamp copper garden window paper bridge candle harbour meadow anchor".split()
_SCHEMAS: tuple[dict[str, Any], ...] = (
    {"type": "object", "properties": {}},
    {
        "type": "object",
        "properties": {"path": {"type": "string"}, "limit": {"type": "integer", "description": "Lines."}},
        "required": ["path"],
    },
    {
        "type": "object",
        "properties": {
            "where": {"type": "object", "properties": {"city": {"type": "string"}}},
            "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
        },
    },
)


class Bodies:
    """Makes bodies from one seed.

    Attributes:
        random: the source of all choices.
        rare: how often a rare form is taken.
    """

    def __init__(self, seed: int, rare: float = 0.12) -> None:
        self.random = random.Random(seed)
        self.rare = rare
        self._texts = 0

    def body(self, route: Route) -> dict[str, Any]:
        """Return the next body of a route."""
        makers: Mapping[Route, Callable[[], dict[str, Any]]] = {
            "chat": self._chat,
            "messages": self._messages,
            "responses": self._responses,
        }
        return makers[route]()

    def _seldom(self) -> bool:
        return self.random.random() < self.rare

    def _text(self) -> str:
        self._texts += 1
        text = " ".join([f"t{self._texts}", *self.random.choices(_WORDS, k=self.random.randint(1, 4))])
        if self._seldom():
            return self.random.choice((f" {text}", f"{text}\n", f"{text}\n\nand more", f"<b>{text}</b> é"))
        return text

    def _arguments(self) -> dict[str, Any]:
        return self.random.choice(({}, {"path": "a.txt"}, {"path": "b", "limit": 3}, {"n": [1, {"x": None}]}))

    def _dialogue(self) -> list[str]:
        """Return the kinds of turns, in order; `call` is an assistant turn with calls, and their results."""
        kinds = ["system"] if self.random.random() < 0.7 else []
        if self._seldom():
            kinds.append(self.random.choice(("system", "developer")))
        for _ in range(self.random.randint(1, 4)):
            kinds.append("user")
            if self._seldom():
                kinds.append("user")
            while self.random.random() < 0.3:
                kinds.append("call")
                if self.random.random() < 0.2:
                    kinds.append("system")
            if self.random.random() < 0.3:
                kinds.append("system" if self.random.random() < 0.8 else "developer")
            kinds.append("assistant")
            if self._seldom():
                kinds.append("assistant")
        if self.random.random() < 0.75:
            kinds.append("user")
        if self.random.random() < 0.15:
            kinds.append("system")
        return kinds

    # chat completions

    def _chat(self) -> dict[str, Any]:
        messages: list[dict[str, Any]] = []
        for kind in self._dialogue():
            if kind == "call":
                messages += self._chat_call()
            else:
                messages.append(self._chat_message(kind))
        body: dict[str, Any] = {"model": "m", "messages": messages}
        if (tools := self._tools()) is not None:
            body["tools"] = [self._chat_tool(name, schema) for name, schema in tools]
        if self._seldom():
            body["reasoning_effort"] = self.random.choice(EFFORTS)
        return self._with_settings(body)

    def _chat_message(self, role: str) -> dict[str, Any]:
        message: dict[str, Any] = {"role": role, "content": self._chat_content(role)}
        if role == "assistant" and self.random.random() < 0.4:
            name = "reasoning" if self._seldom() else "reasoning_content"
            message[name] = self._text() if not self._seldom() else ""
        if role == "user" and self._seldom() and self._seldom():
            message["name"] = "ann"
        return message

    def _chat_content(self, role: str) -> Any:
        if self._seldom():
            return self.random.choice(("", None if role == "assistant" else "", [], " "))
        if self.random.random() < 0.25:
            parts: list[dict[str, Any]] = [
                {"type": "text", "text": self._text()} for _ in range(self.random.randint(1, 3))
            ]
            if self._seldom():
                parts.insert(self.random.randrange(len(parts) + 1), {"type": "text", "text": ""})
            return parts
        return self._text()

    def _chat_call(self) -> list[dict[str, Any]]:
        count = 2 if self._seldom() else 1
        names = [f"call_{self._texts}_{n}" for n in range(count)]
        calls = []
        for name in names:
            arguments: Any = json.dumps(self._arguments())
            if self._seldom():
                arguments = self.random.choice(("", "{}", "oops", "[1]", '"text"', "null", " {} "))
            function = {"name": "read", "arguments": arguments}
            calls.append({"id": name, "type": "function", "function": function})
        turn: dict[str, Any] = {"role": "assistant", "tool_calls": calls}
        turn["content"] = self.random.choice((None, "", self._text()))
        if self._seldom():
            del turn["content"]
        if self.random.random() < 0.4:
            turn["reasoning_content"] = self._text()
        results = [{"role": "tool", "tool_call_id": name, "content": self._result()} for name in names]
        return [turn, *results]

    def _result(self) -> Any:
        if self._seldom():
            return self.random.choice(("", [{"type": "text", "text": self._text()}]))
        return self._text()

    def _tools(self) -> list[tuple[str, dict[str, Any] | None]] | None:
        if self.random.random() < 0.5:
            return None
        if self._seldom():
            return []
        count = self.random.randint(1, 2)
        schemas = [None if self._seldom() else self.random.choice(_SCHEMAS) for _ in range(count)]
        return [(name, schema) for name, schema in zip(("read", "find"), schemas, strict=False)]

    def _chat_tool(self, name: str, schema: dict[str, Any] | None) -> dict[str, Any]:
        function: dict[str, Any] = {"name": name, "description": self._text()}
        if self._seldom():
            del function["description"]
        if schema is not None:
            function["parameters"] = schema
        if self._seldom():
            function["strict"] = self.random.choice((True, False))
        return {"type": "function", "function": function}

    def _with_settings(self, body: dict[str, Any]) -> dict[str, Any]:
        if self._seldom():
            kwargs = ({"enable_thinking": False}, {"enable_thinking": True}, {"preserve_thinking": True}, {})
            body["chat_template_kwargs"] = self.random.choice(kwargs)
        return body

    # Anthropic messages

    def _messages(self) -> dict[str, Any]:
        kinds = self._dialogue()
        body: dict[str, Any] = {"model": "m", "max_tokens": 4096}
        if kinds[0] == "system":
            kinds = kinds[1:]
            body["system"] = self._system_blocks() if self.random.random() < 0.6 else self._text()
        messages: list[dict[str, Any]] = []
        for kind in kinds:
            if kind == "call":
                messages += self._messages_call()
            elif kind in ("system", "developer"):
                messages.append({"role": "system", "content": self._blocks("system")})
            else:
                messages.append({"role": kind, "content": self._blocks(kind)})
        body["messages"] = messages
        if (tools := self._tools()) is not None:
            body["tools"] = [self._messages_tool(name, schema) for name, schema in tools]
        if self._seldom():
            body["thinking"] = self.random.choice(
                ({"type": "disabled"}, {"type": "enabled", "budget_tokens": 1024}, {"type": "adaptive"})
            )
        if self._seldom():
            body["output_config"] = {"effort": self.random.choice(EFFORTS[2:])}
        return body

    def _system_blocks(self) -> list[dict[str, Any]]:
        blocks = [{"type": "text", "text": self._text()} for _ in range(self.random.randint(1, 3))]
        if self._seldom():
            line = "x-anthropic-billing-header: cc_version=2.1; cch=0a1b2;"
            blocks.insert(0, {"type": "text", "text": line})
        if self._seldom():
            blocks[-1] = {**blocks[-1], "cache_control": {"type": "ephemeral"}}  # type: ignore[dict-item]
        return blocks

    def _blocks(self, role: str) -> Any:
        if self._seldom():
            return self.random.choice(("", []))
        if self.random.random() < 0.4:
            return self._text()
        blocks: list[dict[str, Any]] = [
            {"type": "text", "text": self._text()} for _ in range(self.random.randint(1, 2))
        ]
        if role == "assistant" and self.random.random() < 0.4:
            blocks.insert(0, {"type": "thinking", "thinking": self._text(), "signature": "s"})
        if self._seldom():
            blocks.append({"type": "text", "text": ""})
        return blocks

    def _messages_call(self) -> list[dict[str, Any]]:
        count = 2 if self._seldom() else 1
        names = [f"toolu_{self._texts}_{n}" for n in range(count)]
        blocks: list[dict[str, Any]] = []
        if self.random.random() < 0.4:
            blocks.append({"type": "thinking", "thinking": self._text(), "signature": "s"})
        if self.random.random() < 0.5:
            blocks.append({"type": "text", "text": self._text()})
        blocks += [
            {"type": "tool_use", "id": each, "name": "read", "input": self._arguments()} for each in names
        ]
        results: list[dict[str, Any]] = [self._messages_result(each) for each in names]
        if self._seldom():
            text = {"type": "text", "text": self._text()}
            results.insert(self.random.choice((0, len(results))), text)
        return [{"role": "assistant", "content": blocks}, {"role": "user", "content": results}]

    def _messages_result(self, name: str) -> dict[str, Any]:
        result: dict[str, Any] = {"type": "tool_result", "tool_use_id": name}
        texts = [{"type": "text", "text": self._text()} for _ in range(self.random.randint(1, 2))]
        result["content"] = self.random.choice((self._text(), texts))
        if self._seldom():
            result["content"] = self.random.choice(("", []))
            if self.random.random() < 0.3:
                del result["content"]
        if self._seldom():
            result["is_error"] = self.random.choice((True, False))
        return result

    def _messages_tool(self, name: str, schema: dict[str, Any] | None) -> dict[str, Any]:
        tool: dict[str, Any] = {"name": name, "description": self._text()}
        if self._seldom():
            del tool["description"]
        tool["input_schema"] = schema or _SCHEMAS[0]
        return tool

    # Responses

    def _responses(self) -> dict[str, Any]:
        kinds = self._dialogue()
        body: dict[str, Any] = {"model": "m"}
        if kinds[0] == "system":
            kinds = kinds[1:]
            body["instructions"] = self._text()
        items: list[dict[str, Any]] = []
        for kind in kinds:
            if kind == "call":
                items += self._responses_call()
            else:
                if kind == "assistant" and self.random.random() < 0.3:
                    items.append(self._reasoning())
                items.append(self._responses_message(kind))
        body["input"] = items
        if len(items) == 1 and items[0].get("role") == "user" and self.random.random() < 0.5:
            body["input"] = self._text()
        if (tools := self._tools()) is not None:
            body["tools"] = [self._responses_tool(name, schema) for name, schema in tools]
        if self._seldom():
            body["reasoning"] = {"effort": self.random.choice(EFFORTS[:5])}
        return body

    def _responses_message(self, role: str) -> dict[str, Any]:
        kind = "output_text" if role == "assistant" else "input_text"
        item: dict[str, Any] = {"type": "message", "role": role}
        if self.random.random() < 0.6:
            parts: list[dict[str, Any]] = [
                {"type": kind, "text": self._text()} for _ in range(self.random.randint(1, 2))
            ]
            item["content"] = parts
        else:
            item["content"] = self._text() if not self._seldom() else ""
        if self._seldom() and role != "assistant":
            del item["type"]
        return item

    def _reasoning(self) -> dict[str, Any]:
        item: dict[str, Any] = {"type": "reasoning", "id": f"rs_{self._texts}"}
        item["summary"] = (
            [] if self.random.random() < 0.5 else [{"type": "summary_text", "text": self._text()}]
        )
        if self.random.random() < 0.8:
            item["content"] = [{"type": "reasoning_text", "text": self._text()}]
        return item

    def _responses_call(self) -> list[dict[str, Any]]:
        count = 2 if self._seldom() else 1
        names = [f"call_{self._texts}_{n}" for n in range(count)]
        calls = []
        for name in names:
            arguments = json.dumps(self._arguments())
            if self._seldom():
                arguments = self.random.choice(("", "oops", "[1]"))
            calls.append({"type": "function_call", "call_id": name, "name": "read", "arguments": arguments})
        outputs = []
        for name in names:
            output: Any = self._text()
            if self._seldom():
                output = [{"type": "input_text", "text": self._text()}]
            outputs.append({"type": "function_call_output", "call_id": name, "output": output})
        reasoning = [self._reasoning()] if self.random.random() < 0.3 else []
        return [*reasoning, *calls, *outputs]

    def _responses_tool(self, name: str, schema: dict[str, Any] | None) -> dict[str, Any]:
        tool: dict[str, Any] = {"type": "function", "name": name, "description": self._text()}
        if self._seldom():
            del tool["description"]
        tool["parameters"] = schema or _SCHEMAS[0]
        if self._seldom():
            tool["strict"] = self.random.choice((True, False))
        return tool
