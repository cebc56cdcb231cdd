"""Tool calls and results as text in brackets, for models whose template or parser has no form for them.

oMLX, its forks, vllm-mlx and Rapid-MLX write the same lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any


def call_line(name: Any, arguments: Any) -> str:
    """Return a tool call as a line of text."""
    return f"[Calling tool: {name}({arguments})]"


def call_lines(calls: Iterable[Any]) -> list[str]:
    """Return the lines of the calls of a chat message, as it has them."""
    functions = [call.get("function") for call in calls if isinstance(call, Mapping)]
    named = [function if isinstance(function, Mapping) else {} for function in functions]
    return [call_line(each.get("name", "unknown"), _text(each.get("arguments", "{}"))) for each in named]


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def result_prefix(identity: Any, kind: str = "Result") -> str:
    """Return what stands before the text of a tool's result, or with kind `Error` of its failure."""
    return f"[Tool {kind} ({identity})]: "
