"""Messages, requests and what policies make of them, as the tests write them: short."""

import json
from pathlib import Path
from typing import Any

from tplaudit.probes.conversation import Message, Request
from tplaudit.probes.policies.base import Prepared
from tplaudit.probes.policies.registry import Action, parse_policy

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {}}}
CALLS = {"tool_calls": [CALL]}
BOUNDARY = {"_preserve_role_boundary": True}
AFTER_TOOL = (("S", "s"), ("U", "u"), ("A", "", CALLS), ("T", "r"), ("S", "n"))
VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "policy_vectors.json").read_text(encoding="utf-8")
)


def S(content: Any, **keys: Any) -> dict[str, Any]:
    return {"role": "system", "content": content, **keys}


def U(content: Any, **keys: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **keys}


def A(content: Any, **keys: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **keys}


def T(content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "c1", "content": content}


def part(text: Any, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "text": text}


def vectors_of(policy: str) -> list[dict[str, Any]]:
    """The vectors of policies whose name begins so: messages, and what a server made of them."""
    return [vector for vector in VECTORS if vector["policy"].startswith(policy)]


def request_of(messages: list[dict[str, Any]], **fields: Any) -> Request:
    return Request(tuple(Message(data, n) for n, data in enumerate(messages)), **fields)


def prepared(spec: str, messages: list[dict[str, Any]], template: Any = None, **fields: Any) -> Prepared:
    """Return what a policy makes of messages; most servers' do not look at the template."""
    return parse_policy(spec).prepare(request_of(messages, **fields), template)


def data(after: Prepared) -> list[dict[str, Any]]:
    return [dict(message.data) for message in after.request.messages]


def actions(policy: str, template: Any, *turns: Any, partial: bool = False) -> tuple[Action, ...]:
    roles = {"S": "system", "D": "developer", "U": "user", "A": "assistant", "T": "tool"}
    messages = tuple(
        Message({"role": roles[turn[0]], "content": turn[1], **(turn[2] if len(turn) > 2 else {})}, n)
        for n, turn in enumerate(turns)
    )
    return parse_policy(policy).prepare(Request(messages, partial=partial), template).actions


def conversation(*turns: tuple[str, Any]) -> tuple[Message, ...]:
    roles = {"S": "system", "D": "developer", "U": "user", "A": "assistant", "T": "tool"}
    return tuple(
        Message({"role": roles[role], "content": content}, n) for n, (role, content) in enumerate(turns)
    )


def owners(message: Message, part: int | None = None) -> str:
    """The owner of every character, one digit each."""
    text = message.content if part is None else message.content[part]["text"]
    return "".join(str(message.origin(offset, part)) for offset in range(len(text)))
