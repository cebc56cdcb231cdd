"""oMLX's strict hoist alone: every system turn goes into the leading block, whatever the template can do.

`hoist+merge` also joins neighbouring turns of one role, as oMLX's text routes do after a hoist
(docs/servers.md, section 1; jundot/omlx, omlx/api/utils.py).
"""

from __future__ import annotations

from ..base import Messages, Rewrite
from ..rewrite.system_turns import strict_hoist
from .omlx_parts import kinds


def _hoisted(messages: Messages) -> Rewrite:
    return strict_hoist(messages, "moved into the first system block")


KINDS = kinds(
    "hoist",
    _hoisted,
    "moves every system turn into the first system block, without probing",
    "Every new system turn makes the first block longer, so that everything after it is another prompt.",
)
