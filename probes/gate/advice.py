"""What `--allow` has to say so that changes pass which are meant."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .allowances import allowing, read_allowances
from .observe.shapes import SHAPES
from .report import Change

#: The groups of the shipped conversations.
_GROUPS = {shape.group for shape in SHAPES}


def patterns(change: Change) -> tuple[str, ...]:
    """Return what allows one change, such as `changed:tools/*`; nothing where nothing can or has to."""
    if change.kind != "changed" or change.accepted:
        return ()
    if change.rule != "prompt-changed":
        return (f"changed:{change.rule}",)
    places = dict.fromkeys(subject.place for subject in change.subjects)
    groups = dict.fromkeys(subject.group for subject in change.subjects)
    if groups.keys() >= _GROUPS:
        return (f"changed:{change.rule}",)
    if len(places) <= len(groups):
        return tuple(f"changed:{_literal(place)}" for place in places)
    return tuple(f"changed:{group}/*" for group in groups)


def all_patterns(changes: Sequence[Change]) -> tuple[str, ...]:
    """Return what allows all changes together, without what another pattern allows already."""
    found = read_allowances(dict.fromkeys(pattern for change in changes for pattern in patterns(change)))
    needed = {
        allowing(found, change.rule, subject)
        for change in changes
        if patterns(change)
        for subject in change.subjects
    }
    return tuple(allowance.text for allowance in found if allowance in needed)


def _literal(place: str) -> str:
    """Return the shell pattern that matches a place alone."""
    return re.sub(r"([*?[])", r"[\1]", place)
