"""Lines to paste: what servers and clients call the settings that stop a divergence.

A server's are stated in its module (`PolicyKind.kwargs_setting` and `.remedies`).

Clients: Claude Code's in anthropics/claude-code#68900 and ollama/ollama#14918 (attribution header),
anthropics/claude-code#81259 (token counter), and its settings page (`includeGitInstructions`).
"""

from __future__ import annotations

import json
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
    """

    mark: str
    set: str
    paste: str


_CLAUDE_CODE = "~/.claude/settings.json"
CLIENT_SETTINGS = (
    ClientSetting(
        "x-anthropic-billing-header",
        "CLAUDE_CODE_ATTRIBUTION_HEADER=0",
        f'"env": {{"CLAUDE_CODE_ATTRIBUTION_HEADER": "0"}} in {_CLAUDE_CODE}',
    ),
    ClientSetting(
        "<total_tokens>", "totalTokensReminder=off", f'"totalTokensReminder": "off" in {_CLAUDE_CODE}'
    ),
    ClientSetting(
        "gitstatus:", "includeGitInstructions=false", f'"includeGitInstructions": false in {_CLAUDE_CODE}'
    ),
    ClientSetting(
        "git status", "includeGitInstructions=false", f'"includeGitInstructions": false in {_CLAUDE_CODE}'
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


def client_setting(text: str) -> ClientSetting | None:
    """Return the setting that takes a text like this out of a client's requests."""
    lower = text.lower()
    return next((setting for setting in CLIENT_SETTINGS if setting.mark in lower), None)


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
