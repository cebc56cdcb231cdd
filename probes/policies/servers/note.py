"""oMLX's `user_note_safe` alone: later system turns become notes in user turns, whatever the template can do.

`note+merge` also joins neighbouring turns of one role, as oMLX's text routes do afterwards (docs/servers.md,
section 1; jundot/omlx, omlx/api/utils.py).
"""

from __future__ import annotations

from ..kind import PolicyKind
from ..rewrite.user_notes import note_or_hoist
from .omlx_parts import maker

_DRIFT = (
    "A note moves from the turn before it to the user turn after it once that arrives; a refused note moves "
    "all of them into the first block."
)
KINDS = (
    PolicyKind(
        "note",
        "turns later system turns into notes in user turns, else hoists all",
        maker(note_or_hoist),
        source="jundot/omlx 0.5.3 (commit d5084907)",
        date="2026-07-23",
        evidence={"system turns": "run"},
        cache="paged:256",
        drift=_DRIFT,
        generic=True,
        suite="plain",
    ),
    PolicyKind(
        "note+merge",
        "note, then joins neighbouring turns of one role",
        maker(note_or_hoist, merge=True),
        source="jundot/omlx 0.5.3 (commit d5084907)",
        date="2026-07-23",
        evidence={"system turns": "run", "joined turns": "run"},
        cache="paged:256",
        drift=_DRIFT,
        generic=True,
        suite="plain",
    ),
)
