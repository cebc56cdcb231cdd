"""Which agent a recording is of, told by what its requests have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...conversation import Dialect, Request
from .message_keys import BILLING, texts_of

#: Characters at the beginning of a system text in which an agent says its name.
_BEGINNING = 2000


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent.

    Attributes:
        name: what people call it.
        guessed: whether only its tools tell.
    """

    name: str
    guessed: bool = False


@dataclass(frozen=True, slots=True)
class _Signs:
    """How an agent's requests look.

    Attributes:
        said: what its system text says of itself, in small letters.
        dialect: the API that its tools are sent to.
        tools: names of tools that are there together.
        only: whether it has no other tools.
    """

    name: str
    said: tuple[str, ...]
    dialect: Dialect
    tools: frozenset[str]
    only: bool = False


_AGENTS = (
    _Signs(
        "Claude Code",
        ("claude code", BILLING),
        "anthropic-messages",
        frozenset({"Bash", "Edit", "Read", "Write"}),
    ),
    _Signs("Codex", ("codex",), "openai-responses", frozenset({"exec_command", "write_stdin"})),
    _Signs("Codex", (), "openai-responses", frozenset({"shell", "update_plan"})),
    _Signs(
        "Qwen Code",
        ("qwen code",),
        "openai-chat",
        frozenset({"run_shell_command", "read_file", "write_file"}),
    ),
    _Signs("opencode", ("opencode",), "openai-chat", frozenset({"bash", "todowrite", "webfetch"})),
    _Signs("pi", (), "openai-chat", frozenset({"read", "bash", "edit", "write"}), only=True),
    _Signs("mini-swe-agent", (), "openai-chat", frozenset({"bash"}), only=True),
)


def agent_of(request: Request) -> Agent | None:
    """Return the agent that a request is from; None where nothing tells."""
    beginning = _system(request)[:_BEGINNING].lower()
    for signs in _AGENTS:
        if any(word in beginning for word in signs.said):
            return Agent(signs.name)
    names = tool_names(request.tools)
    for signs in _AGENTS:
        if request.dialect == signs.dialect and (
            signs.tools == names if signs.only else signs.tools <= names
        ):
            return Agent(signs.name, guessed=True)
    return None


def tool_names(tools: tuple[Mapping[str, Any], ...] | None) -> frozenset[str]:
    """Return the names of a request's tools; the type of those without a name."""
    return frozenset(map(tool_name, tools or ()))


def tool_name(tool: Mapping[str, Any]) -> str:
    """Return a tool's name."""
    function = tool.get("function")
    named = function.get("name") if isinstance(function, Mapping) else tool.get("name")
    return str(named or tool.get("type") or "")


def _system(request: Request) -> str:
    system = request.system
    texts = [system] if isinstance(system, str) else [str(each.get("text", "")) for each in system or ()]
    for message in request.messages[:2]:
        if message.data.get("role") in ("system", "developer"):
            texts += texts_of(message.data)
    return "\n".join(texts)
