"""oMLX's strict hoist alone: every system turn goes into the leading block, whatever the template can do.

Neither probes nor relocates. `hoist+merge` also joins neighbouring turns of one role, as oMLX's text routes
do after a hoist (docs/servers.md, section 1; jundot/omlx, omlx/api/utils.py). A request of another dialect is
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
from .system_turns import strict_hoist

if TYPE_CHECKING:
    from ..template import ChatTemplate


@dataclass(frozen=True, slots=True)
class Hoist:
    """Moves all system text to the front; leaves the messages alone when there is none.

    Attributes:
        name: the policy as the person named it.
        merge: join neighbouring turns of one role afterwards.
    """

    name: str
    merge: bool = False

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return the request with one leading system message."""
        chat = plain_chat(request)
        rewrite = strict_hoist(chat.request.messages, "moved into the first system block")
        return rewritten(chat, rewrite.then(merge_roles) if self.merge else rewrite)


def _hoist(name: str, options: Mapping[str, str]) -> Policy:
    return Hoist(name)


def _hoist_and_merge(name: str, options: Mapping[str, str]) -> Policy:
    return Hoist(name, merge=True)


_SOURCE = "jundot/omlx 0.5.3 (commit d5084907)"
_DRIFT = "Every new system turn makes the first block longer, so that everything after it is another prompt."
KINDS = (
    PolicyKind(
        "hoist",
        "moves every system turn into the first system block, without probing",
        _hoist,
        source=_SOURCE,
        date="2026-07-23",
        evidence="run",
        cache="paged:256",
        drift=_DRIFT,
    ),
    PolicyKind(
        "hoist+merge",
        "hoist, then joins neighbouring turns of one role",
        _hoist_and_merge,
        source=_SOURCE,
        date="2026-07-23",
        evidence="run",
        cache="paged:256",
        drift=_DRIFT,
    ),
)
