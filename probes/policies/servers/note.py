"""oMLX's `user_note_safe` alone: later system turns become notes in user turns, whatever the template can do.

`note+merge` also joins neighbouring turns of one role, as oMLX's text routes do afterwards (docs/servers.md,
section 1; jundot/omlx, omlx/api/utils.py).
"""

from __future__ import annotations

from ..rewrite.user_notes import note_or_hoist
from .omlx_parts import kinds

KINDS = kinds(
    "note",
    note_or_hoist,
    "turns later system turns into notes in user turns, else hoists all",
    "A note moves from the turn before it to the user turn after it once that arrives; a refused note moves "
    "all of them into the first block.",
)
