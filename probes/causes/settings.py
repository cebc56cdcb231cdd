"""Lines to paste: what known servers and clients call the settings that stop a divergence.

Servers: docs/servers.md, sections 1.8 and 1.12, and the flags' names in waybarrios/vllm-mlx#394 (vLLM's
too), Blaizzy/mlx-vlm#1128 (mlx_lm.server) and ggml-org/llama.cpp (`--chat-template-kwargs`). Clients:
Claude Code's in anthropics/claude-code#68900 and ollama/ollama#14918 (attribution header),
anthropics/claude-code#81259 (token counter), and its settings page (`includeGitInstructions`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..policies.registry import canonical

_FLAGS = {
    "llama-cpp": "llama-server … --chat-template-kwargs '{}'",
    "vllm": "vllm serve … --default-chat-template-kwargs '{}'",
    "vllm-mlx": "vllm-mlx serve … --default-chat-template-kwargs '{}'",
    "mlx-lm": "mlx_lm.server … --chat-template-args '{}'",
    "omlx": '"chat_template_kwargs": {} in the model\'s settings',
    "omlx-strict": '"chat_template_kwargs": {} in the model\'s settings',
}
_REQUEST = '"chat_template_kwargs": {} in every request'


@dataclass(frozen=True, slots=True)
class ClientSetting:
    """A setting of a client that takes a text out of its requests.

    Attributes:
        mark: stands in such a text, in lower case.
        set: the setting, short.
        paste: the line, and where it goes.
        text: exactly what the setting takes out.
    """

    mark: str
    set: str
    paste: str
    text: re.Pattern[str]

    def without(self, text: str) -> str:
        """Return a text as a client with this setting writes it."""
        return self.text.sub("", text) if self.mark in text.lower() else text


@dataclass(frozen=True, slots=True)
class OtherPolicy:
    """Another policy that may keep the prompt as it was.

    Attributes:
        policy: its name, as `--policy` takes it.
        set: what that is, short.
        paste: the line, where one server has a setting for it.
    """

    policy: str
    set: str
    paste: str | None = None


_CLAUDE_CODE = "~/.claude/settings.json"
#: The setting that has all tools sent from the first request on, which no text shows.
ALL_TOOLS = "ENABLE_TOOL_SEARCH=false"
ALL_TOOLS_LINE = f'"env": {{"ENABLE_TOOL_SEARCH": "false"}} in {_CLAUDE_CODE}'
CLIENT_SETTINGS = (
    ClientSetting(
        "x-anthropic-billing-header",
        "CLAUDE_CODE_ATTRIBUTION_HEADER=0",
        f'"env": {{"CLAUDE_CODE_ATTRIBUTION_HEADER": "0"}} in {_CLAUDE_CODE}',
        re.compile(r"(?im)^x-anthropic-billing-header:[^\n]*(?:\n|$)"),
    ),
    ClientSetting(
        "<total_tokens>",
        "totalTokensReminder=off",
        f'"totalTokensReminder": "off" in {_CLAUDE_CODE}',
        re.compile(r"\n{0,2}<total_tokens>\s*\d[\d,]*\s+tokens?\s+left\s*</total_tokens>"),
    ),
    ClientSetting(
        "gitstatus",
        "includeGitInstructions=false",
        f'"includeGitInstructions": false in {_CLAUDE_CODE}',
        # A section of the system text or of a reminder, up to the next one or the end.
        re.compile(r"(?ms)\n*^(?:# )?gitStatus\b.*?(?=\n# |\n</|\Z)"),
    ),
)

_OWN = {
    "omlx-strict": OtherPolicy(
        "omlx", "preserve_mid_system_cache=true", '"preserve_mid_system_cache": true in oMLX\'s settings'
    ),
}
_OTHERS = (
    OtherPolicy("as-is", "system turns left in place (policy as-is)"),
    OtherPolicy("note", "system turns as notes (policy note)"),
    OtherPolicy("note+merge", "system turns as notes (policy note+merge)"),
)
_UNJOINED = OtherPolicy("hoist", "system turns in front, no turns joined (policy hoist)")


def kwarg_line(policy: str, name: str, value: Any) -> str:
    """Return the line that sets a chat-template kwarg on the server of a policy, else in the request."""
    form = _FLAGS.get(_name(policy), _REQUEST)
    return form.replace("{}", json.dumps({name: value}, ensure_ascii=False))


def other_policies(policy: str) -> Iterator[OtherPolicy]:
    """Yield what may be tried instead of a policy: its server's own setting first."""
    name = _name(policy)
    if name in _OWN:
        yield _OWN[name]
    for other in _OTHERS:
        if other.policy != name:
            yield other
    if name.endswith("+merge"):
        yield _UNJOINED


def _name(policy: str) -> str:
    return canonical(policy).partition(":")[0]
