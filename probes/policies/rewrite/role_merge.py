"""Joining neighbouring user turns, and assistant turns, for templates that want the two to alternate.

The rules are oMLX's (docs/servers.md, section 1; jundot/omlx, omlx/api/utils.py).
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ...conversation import Message, Piece
from ..base import Messages, Rewrite
from .system_turns import has_role, join_neighbours
from .texts import cover, joined_contents, rebuilt
from .user_notes import BOUNDARY_KEY

BETWEEN_TURNS = "\n\n"


def merge_roles(messages: Messages) -> Rewrite:
    """Join neighbouring turns of the role user, and of the role assistant.

    The keys of the earlier turn survive; of the later one only the content does, so that its tool calls and
    its reasoning are lost. A turn with the key `_preserve_role_boundary` is not joined, nor are contents that
    the server fails on (neither text nor list).
    """
    return join_neighbours(messages, _joined)


def _joined(earlier: Message, later: Message) -> Message | None:
    """Return two turns as one, or None where they stay apart."""
    if not any(has_role(earlier, role) and has_role(later, role) for role in ("user", "assistant")):
        return None
    if earlier.data.get(BOUNDARY_KEY) or later.data.get(BOUNDARY_KEY):
        return None
    return joined_turns(earlier, later)


def joined_turns(earlier: Message, later: Message) -> Message | None:
    """Return the earlier turn with the contents of both: texts are one, parts of lists stand side by side.

    None for contents that are neither text nor list.
    """
    before, after = earlier.content, later.content
    if not after:
        return earlier
    if not before:
        return rebuilt(earlier, after, cover(later))
    if isinstance(before, list) or isinstance(after, list):
        parts = _parts(before)
        pieces = (*_as_parts(earlier, 0), *_as_parts(later, len(parts)))
        return rebuilt(earlier, [*parts, *_parts(after)], pieces)
    if not isinstance(before, str) or not isinstance(after, str):
        return None
    return joined_contents(earlier, later, BETWEEN_TURNS)


def _parts(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _as_parts(message: Message, first: int) -> tuple[Piece, ...]:
    """Return the pieces of a content as those of content parts, the first of them numbered `first`."""
    return tuple(dataclasses.replace(piece, part=(piece.part or 0) + first) for piece in cover(message))
