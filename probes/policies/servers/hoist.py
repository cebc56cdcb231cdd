"""oMLX's strict hoist alone: every system turn goes into the leading block, whatever the template can do.

`hoist+merge` also joins neighbouring turns of one role, as oMLX's text routes do after a hoist
(docs/servers.md, section 1; jundot/omlx, omlx/api/utils.py).
"""

from __future__ import annotations

from ..base import Messages, Rewrite
from ..kind import PolicyKind
from ..rewrite.system_turns import strict_hoist
from .omlx_parts import maker


def _hoisted(messages: Messages) -> Rewrite:
    return strict_hoist(messages, "moved into the first system block")


_DRIFT = "Every new system turn makes the first block longer, so that everything after it is another prompt."
KINDS = (
    PolicyKind(
        "hoist",
        "moves every system turn into the first system block, without probing",
        maker(_hoisted),
        source="jundot/omlx 0.5.3 (commit d5084907)",
        date="2026-07-23",
        evidence={"system turns": "run"},
        cache="paged:256",
        drift=_DRIFT,
        generic=True,
        suite="plain",
    ),
    PolicyKind(
        "hoist+merge",
        "hoist, then joins neighbouring turns of one role",
        maker(_hoisted, merge=True),
        source="jundot/omlx 0.5.3 (commit d5084907)",
        date="2026-07-23",
        evidence={"system turns": "run", "joined turns": "run"},
        cache="paged:256",
        drift=_DRIFT,
        generic=True,
        suite="plain",
    ),
)
