"""One of oMLX's rules alone, without its probe, its relocation hook and its routes.

`hoist` is its strict hoist: every system turn goes into the leading block, whatever the template can do.
`note` is its `user_note_safe`: later system turns become notes in user turns. With `+merge` neighbouring
turns of one role are joined afterwards, as oMLX's text routes do (docs/servers.md, section 1; jundot/omlx,
omlx/api/utils.py). A request of another dialect is written as chat messages first, in the plainest way
(`plain_chat`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from ...conversation import Request
from ...templates.template import ChatTemplate
from ..api.plain_chat import plain_chat
from ..base import Messages, Prepared, Rewrite
from ..kind import PolicyKind
from ..rewrite.role_merge import merge_roles
from ..rewrite.system_turns import strict_hoist
from ..rewrite.user_notes import note_or_hoist


@dataclass(frozen=True, slots=True)
class OmlxPart:
    """Applies one rule to the messages.

    Attributes:
        name: the policy as the person named it.
        rule: the rule.
        merge: join neighbouring turns of one role afterwards.
    """

    name: str
    rule: Callable[[Messages], Rewrite]
    merge: bool = False

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return the request as the rule makes it."""
        done = plain_chat(request).then(self.rule)
        return done.then(merge_roles) if self.merge else done


_hoisted = partial(strict_hoist, why="moved into the first system block")
_HOIST = PolicyKind(
    "hoist",
    "moves every system turn into the first system block, without probing",
    lambda name, options: OmlxPart(name, _hoisted),
    source="jundot/omlx 0.5.3 (commit d5084907)",
    date="2026-07-23",
    evidence={"system turns": "run"},
    cache="paged:256",
    drift="Every new system turn makes the first block longer, so that everything after it is another "
    "prompt.",
    generic=True,
    suite="plain",
)
_NOTE = replace(
    _HOIST,
    name="note",
    summary="turns later system turns into notes in user turns, else hoists all",
    make=lambda name, options: OmlxPart(name, note_or_hoist),
    evidence={"system turns": "run"},
    drift="A note moves from the turn before it to the user turn after it once that arrives; a refused note "
    "moves all of them into the first block.",
)
KINDS = (
    _HOIST,
    replace(
        _HOIST,
        name="hoist+merge",
        summary="hoist, then joins neighbouring turns of one role",
        make=lambda name, options: OmlxPart(name, _hoisted, merge=True),
        evidence={"system turns": "run", "joined turns": "run"},
    ),
    _NOTE,
    replace(
        _NOTE,
        name="note+merge",
        summary="note, then joins neighbouring turns of one role",
        make=lambda name, options: OmlxPart(name, note_or_hoist, merge=True),
        evidence={"system turns": "run", "joined turns": "run"},
    ),
)
