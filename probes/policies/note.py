"""oMLX's `user_note_safe` alone: later system turns become notes in user turns, whatever the template can do.

Neither probes nor relocates. `note+merge` also joins neighbouring turns of one role, as oMLX's text routes do
afterwards (docs/servers.md, section 1; jundot/omlx, omlx/api/utils.py). A request of another dialect is
written as chat messages first, in the plainest way (`plain_chat`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..conversation import Request
from .base import Policy, PolicyKind, Prepared
from .plain_chat import plain_chat
from .preparation import rewritten
from .role_merge import merge_roles
from .user_notes import note_or_hoist

if TYPE_CHECKING:
    from ..template import ChatTemplate


@dataclass(frozen=True, slots=True)
class Note:
    """Turns later system turns into notes; hoists all of them where one is refused.

    Attributes:
        name: the policy as the person named it.
        merge: join neighbouring turns of one role afterwards.
    """

    name: str
    merge: bool = False

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return the request without later system messages."""
        chat = plain_chat(request)
        rewrite = note_or_hoist(chat.request.messages)
        return rewritten(chat, rewrite.then(merge_roles) if self.merge else rewrite)


def _note(name: str, options: Mapping[str, str]) -> Policy:
    return Note(name)


def _note_and_merge(name: str, options: Mapping[str, str]) -> Policy:
    return Note(name, merge=True)


_SOURCE = "jundot/omlx 0.5.3 (commit d5084907)"
_DRIFT = (
    "A note moves from the turn before it to the user turn after it once that arrives; a refused note moves "
    "all of them into the first block."
)
KINDS = (
    PolicyKind(
        "note",
        "turns later system turns into notes in user turns, else hoists all",
        _note,
        source=_SOURCE,
        date="2026-07-23",
        evidence="run",
        cache="paged:256",
        drift=_DRIFT,
    ),
    PolicyKind(
        "note+merge",
        "note, then joins neighbouring turns of one role",
        _note_and_merge,
        source=_SOURCE,
        date="2026-07-23",
        evidence="run",
        cache="paged:256",
        drift=_DRIFT,
    ),
)
