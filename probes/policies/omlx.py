"""oMLX: system turns stay in place where the template can, else become notes, else are hoisted.

The whole of the server's `prepare_system_messages_for_template`, as of the autumn of 2026: the relocation
hook, the check of placements, the probe of the real template, and the fallback. `omlx-strict` is the server
with `preserve_mid_system_cache` off: it hoists at once where the template cannot leave the turns in place
(docs/servers.md, section 1; jundot/omlx#2753, jundot/omlx#3608, omlx/api/utils.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..conversation import Request
from .base import Action, Messages, Policy, PolicyKind, Prepared, Rewrite
from .omlx_probe import Probe
from .relocation import relocate
from .role_merge import merge_roles
from .system_turns import (
    Placement,
    Run,
    has_role,
    merge_runs,
    neighbours,
    placement,
    strict_hoist,
    system_runs,
)
from .user_notes import note_or_hoist

if TYPE_CHECKING:
    from ..template import ChatTemplate


@dataclass(frozen=True, slots=True)
class Omlx:
    """oMLX's preparation of system messages, from the messages as given.

    Attributes:
        name: the policy as the person named it.
        strict: the fallback is the hoist alone, never notes.
        merge: join neighbouring turns of one role in the fallback; off on the server's multimodal route.
        probe: the probe with its memory, which the server keeps for the whole process.
    """

    name: str
    strict: bool = False
    merge: bool = True
    probe: Probe = field(default_factory=Probe)

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return the request with its system turns where this server puts them."""
        start = Rewrite(request.messages)
        hook = getattr(template, "relocate_mid_system_messages", None)
        if callable(hook) and not request.partial and _later_runs(start.messages):
            start = relocate(start.messages, hook)
        return start.then(lambda messages: self._place(messages, request, template)).of(request)

    def _place(self, messages: Messages, request: Request, template: ChatTemplate) -> Rewrite:
        runs = _later_runs(messages)
        if not runs:
            return merge_runs(messages, "")
        placed = [(run, placement(messages, run)) for run in runs]
        unsupported = tuple(_unsupported(messages, run) for run, place in placed if place is None)
        if unsupported:
            return Rewrite(messages, unsupported).then(self._fall_back)
        if request.partial:
            why = "hoisted without a probe, because the last message is to be continued"
            return self._merged(strict_hoist(messages, why))
        places: dict[Placement, list[int]] = {}
        for run, place in placed:
            if place is not None:
                places.setdefault(place, []).extend(run.indices)
        answers = [(place, self.probe(template, place, request)) for place in places]
        probed = tuple(
            Action("probed", tuple(places[place]), f"{place}: {answer.why}") for place, answer in answers
        )
        if all(answer.in_place for _, answer in answers):
            return Rewrite(messages, probed).then(lambda given: merge_runs(given, "left in place"))
        return Rewrite(messages, probed).then(self._fall_back)

    def _fall_back(self, messages: Messages) -> Rewrite:
        if self.strict:
            return self._merged(strict_hoist(messages, "hoisted, because the server keeps no notes"))
        return self._merged(note_or_hoist(messages))

    def _merged(self, rewrite: Rewrite) -> Rewrite:
        return rewrite.then(merge_roles) if self.merge else rewrite


def _later_runs(messages: Messages) -> list[Run]:
    return [run for run in system_runs(messages) if not run.leads]


def _unsupported(messages: Messages, run: Run) -> Action:
    before, after = neighbours(messages, run)
    if has_role(before, "user", "tool"):
        why = f"before a {after.data.get('role') if after else None} turn"
    else:
        why = f"after a turn of role {before.data.get('role') if before else None}"
    return Action("unsupported", run.indices, f"{why} the server never leaves a system turn in place")


def _omlx(name: str, options: Mapping[str, str]) -> Policy:
    return Omlx(name)


def _omlx_strict(name: str, options: Mapping[str, str]) -> Policy:
    return Omlx(name, strict=True)


_OPTIONS = {"route": ("none",)}
_SUMMARY = "oMLX: in place where the template can, else notes, else the hoist"
_STRICT = "oMLX with preserve_mid_system_cache off: in place where the template can, else the hoist"
KINDS = (
    PolicyKind("omlx", _SUMMARY, _omlx, _OPTIONS),
    PolicyKind("omlx-strict", _STRICT, _omlx_strict, _OPTIONS),
)
