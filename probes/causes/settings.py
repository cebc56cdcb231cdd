"""Lines to paste: what servers and clients call the settings that stop a divergence.

A server's are stated in its module (`PolicyKind.kwargs_setting` and `.remedies`).

Clients: Claude Code's in anthropics/claude-code#68900 and ollama/ollama#14918 (attribution header),
anthropics/claude-code#81259 (token counter), and its settings page (`includeGitInstructions`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..policies.kind import OtherPolicy
from ..policies.registry import kind_of

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

_OTHERS = (
    OtherPolicy("as-is", "system turns left in place (policy as-is)"),
    OtherPolicy("note", "system turns as notes (policy note)"),
    OtherPolicy("note+merge", "system turns as notes (policy note+merge)"),
)
_UNJOINED = OtherPolicy("hoist", "system turns in front, no turns joined (policy hoist)")


def kwarg_line(policy: str, name: str, value: Any) -> str:
    """Return the line that sets a chat-template kwarg on the server of a policy, else in the request."""
    kind = kind_of(policy)
    form = (kind.kwargs_setting if kind else "") or _REQUEST
    return form.replace("{}", json.dumps({name: value}, ensure_ascii=False))


def other_policies(policy: str) -> Iterator[OtherPolicy]:
    """Yield what may be tried instead of a policy: its server's own setting first."""
    kind = kind_of(policy)
    name = kind.name if kind else policy
    yield from kind.remedies if kind else ()
    for other in _OTHERS:
        if other.policy != name:
            yield other
    if name.endswith("+merge"):
        yield _UNJOINED
