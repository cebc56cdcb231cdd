"""oMLX: system turns stay in place where the template can, else become notes, else are hoisted.

The whole of the server's `prepare_system_messages_for_template`, as of the autumn of 2026: the relocation
hook, the check of placements, the probe of the real template, and the fallback, on the messages that one of
its routes extracted (omlx_routes.py). `omlx-strict` is the server with `preserve_mid_system_cache` off: it
hoists at once where the template cannot leave the turns in place (docs/servers.md, section 1;
jundot/omlx#2753, jundot/omlx#3608, omlx/api/utils.py).

With `route=none` the messages are arranged as given, without a route's conversions, kwargs and second
attempts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from ...conversation import Request
from ...templates.template import ChatTemplate
from ..api.routes import route_of
from ..base import Action, Messages, Policy, Prepared, Rewrite
from ..kind import OFF, ROUTES, AsksPlacements, Decision, OtherPolicy, PolicyKind, PolicyOption, ReuseReports
from ..rewrite.reasoning import NATIVE_TYPES, VERSIONS
from ..rewrite.relocation import relocate
from ..rewrite.role_merge import merge_roles
from ..rewrite.system_turns import (
    PREDECESSORS,
    Placement,
    Run,
    has_role,
    is_system,
    merge_runs,
    neighbours,
    placement,
    strict_hoist,
    system_runs,
)
from ..rewrite.user_notes import note_or_hoist
from . import omlx_probe
from .omlx_probe import Probe
from .omlx_routes import Routes


@dataclass(frozen=True, slots=True)
class Omlx:
    """oMLX's preparation of a request for the template.

    Attributes:
        name: the policy as the person named it.
        strict: the fallback is the hoist alone, never notes.
        merge: with `route` none, join neighbouring turns of one role in the fallback; the routes know for
            themselves.
        probe: the probe with its memory, which the server keeps for the whole process.
        route: `chat`, `messages` or `responses`; `none` for the messages as given; None for the route of the
            transcript's dialect.
        routes: what the routes do besides.
        predecessors: the roles after which a system turn may stay in place.
        leading_shape: the probe begins with a system message where the request does (jundot/omlx#1991).
        tool_note: a note may be appended to a tool result (jundot/omlx#3608).
    """

    name: str
    strict: bool = False
    merge: bool = True
    probe: Probe = field(default_factory=Probe)
    route: str | None = "none"
    routes: Routes = field(default_factory=Routes)
    predecessors: tuple[str, ...] = PREDECESSORS
    leading_shape: bool = False
    tool_note: bool = False

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return the request with its system turns where this server puts them."""
        route = route_of(self.route, request)
        if route == "none":
            return self._arranged(Prepared(request), template, self.merge)
        chat = self.routes.to_chat(request, template, route)
        merge = route == "responses" or not self.routes.multimodal
        return self.routes.to_render(self._arranged(chat, template, merge), template, route)

    def _arranged(self, prepared: Prepared, template: ChatTemplate, merge: bool) -> Prepared:
        request = prepared.request
        hook = getattr(template, "relocate_mid_system_messages", None)
        if callable(hook) and not request.partial and _later_runs(request.messages):
            prepared = prepared.then(lambda messages: relocate(messages, hook))
        return prepared.then(lambda messages: self._place(messages, request, template, merge))

    def _place(self, messages: Messages, request: Request, template: ChatTemplate, merge: bool) -> Rewrite:
        runs = _later_runs(messages)
        if not runs:
            return merge_runs(messages, "")
        placed = [(run, placement(messages, run, self.predecessors)) for run in runs]
        unsupported = tuple(self._unsupported(messages, run) for run, place in placed if place is None)
        if unsupported:
            return Rewrite(messages, unsupported).then(lambda given: self._fall_back(given, merge))
        if request.partial:
            why = "hoisted without a probe, because the last message is to be continued"
            return _merged(strict_hoist(messages, why), merge)
        places: dict[Placement, list[int]] = {}
        for run, place in placed:
            if place is not None:
                places.setdefault(place, []).extend(run.indices)
        leading = self.leading_shape and is_system(messages[0])
        answers = [(place, self.probe(template, place, request, leading=leading)) for place in places]
        probed = tuple(
            Action("probed", tuple(places[place]), f"{place}: {answer.why}") for place, answer in answers
        )
        if all(answer.in_place for _, answer in answers):
            return Rewrite(messages, probed).then(lambda given: merge_runs(given, "left in place"))
        return Rewrite(messages, probed).then(lambda given: self._fall_back(given, merge))

    def _fall_back(self, messages: Messages, merge: bool) -> Rewrite:
        if self.strict:
            return _merged(strict_hoist(messages, "hoisted, because the server keeps no notes"), merge)
        return _merged(note_or_hoist(messages, after_tools=self.tool_note), merge)

    def _unsupported(self, messages: Messages, run: Run) -> Action:
        before, after = neighbours(messages, run)
        if has_role(before, *self.predecessors):
            why = f"before a {after.data.get('role') if after else None} turn"
        else:
            why = f"after a turn of role {before.data.get('role') if before else None}"
        return Action("unsupported", run.indices, f"{why} the server never leaves a system turn in place")


def _merged(rewrite: Rewrite, merge: bool) -> Rewrite:
    return rewrite.then(merge_roles) if merge else rewrite


def _later_runs(messages: Messages) -> list[Run]:
    return [run for run in system_runs(messages) if not run.leads]


def _instead_of_in_place(place: Placement) -> Decision:
    return "note" if place.preceding == "user" else "hoist"


def _made(name: str, options: Mapping[str, str], *, strict: bool) -> Policy:
    version = options["version"]
    accepts_tool = options.get("tool_predecessor", "off" if version == "0.5.3" else "on") == "on"
    return Omlx(
        name,
        strict=strict,
        route=options.get("route"),
        routes=Routes(
            version=version,
            multimodal=options["engine"] == "vlm",
            model_type=options.get("model_type"),
        ),
        predecessors=PREDECESSORS if accepts_tool else ("user",),
        leading_shape=options["leading_shape"] == "on",
        tool_note=options.get("tool_note") == "on",
    )


_STRICT_OPTIONS = {
    "route": ROUTES,
    "version": PolicyOption(VERSIONS, VERSIONS[-1]),
    "tool_predecessor": PolicyOption(("on", "off"), otherwise="version: off in 0.5.3, on since"),
    "leading_shape": OFF,
    "engine": PolicyOption(("text", "vlm"), "text"),
    "model_type": PolicyOption(tuple(NATIVE_TYPES), otherwise="none of these"),
}
#: Only conversations whose system turns all stand after a `user` or `tool` turn can be left as they are.
_ELSEWHERE = (
    "except before a user turn and after an assistant turn. There no template helps: this server leaves none "
    "in place, but makes them notes in user turns or joins all of them into the first message"
)
#: docs/servers.md, sections 1.8 and 1.12.
_KWARGS_SETTING = '"chat_template_kwargs": {} in the model\'s settings'
_SOURCE = "jundot/omlx 0.5.3 (commit d5084907) and code of September 2026; jundot/omlx#2753, #2882, #3608"
_OMLX = PolicyKind(
    "omlx",
    "oMLX: in place where the template can, else notes, else the hoist",
    partial(_made, strict=False),
    source=_SOURCE,
    date="2026-10",
    evidence={"system turns": "run", "the relocation hook": "read", "conversions of the routes": "run"},
    cache="paged:256",
    drift="A system turn that a user turn comes to follow becomes a note in that turn, and one refused "
    "note moves all earlier notes into the first block.",
    options={**_STRICT_OPTIONS, "tool_note": OFF},
    cache_options=("version",),
    shorthands={"pr-1991": "leading_shape=on"},
    kwargs_setting=_KWARGS_SETTING,
    reuse_reports=ReuseReports(log=True),
    suite="forks",
    checks=(
        AsksPlacements(
            "omlx", 0, omlx_probe.answers, omlx_probe.rejected_ids, _instead_of_in_place, _ELSEWHERE
        ),
        AsksPlacements(
            "omlx:pr-1991",
            1,
            partial(omlx_probe.answers, leading=True),
            partial(omlx_probe.rejected_ids, leading=True),
            _instead_of_in_place,
            _ELSEWHERE,
            options="leading_shape=on",
            leading=True,
        ),
    ),
)
KINDS = (
    _OMLX,
    replace(
        _OMLX,
        name="omlx-strict",
        summary="oMLX with preserve_mid_system_cache off: in place where the template can, else the hoist",
        make=partial(_made, strict=True),
        evidence={"system turns": "run", "the relocation hook": "read", "conversions of the routes": "run"},
        drift="Every system turn that the template cannot leave in place makes the first block longer, so "
        "that everything after it is another prompt.",
        options=_STRICT_OPTIONS,
        checks=(),
        remedies=(
            OtherPolicy(
                "omlx",
                "preserve_mid_system_cache=true",
                '"preserve_mid_system_cache": true in oMLX\'s settings',
            ),
        ),
    ),
)
