"""flyto-mlx: system turns become notes on `/v1/messages`, also in tool results; elsewhere they are hoisted.

A fork of oMLX that does not probe: on `/v1/messages` later system turns become notes even where the template
could leave them in place, and Claude Code's token counter is taken out of system texts. Its chat and
Responses routes hoist every system turn (docs/servers.md, section 2; panwudi/flyto-mlx 0.7.0). The
conversions are oMLX's (omlx_routes.py), also where a transcript is sent to a route of another dialect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...conversation import Message, Request
from ...templates.template import ChatTemplate
from ..api.routes import route_of
from ..base import Messages, Policy, Prepared, Rewrite
from ..kind import ROUTES, PolicyKind, PolicyOption
from ..rewrite.role_merge import merge_roles
from ..rewrite.system_turns import done, is_system, strict_hoist
from ..rewrite.texts import flat_text
from ..rewrite.user_notes import note_or_hoist
from .omlx_routes import Routes, without_counter


@dataclass(frozen=True, slots=True)
class FlytoMlx:
    """flyto-mlx's preparation of a request for the template.

    Attributes:
        name: the policy as the person named it.
        route: `chat`, `messages` or `responses`; `none` for the rules of `messages` on messages as given;
            None for the route of the transcript's dialect.
        routes: what the routes do besides.
    """

    name: str
    route: str | None = None
    routes: Routes = field(default_factory=lambda: Routes(version="sept"))

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return the request with its system turns where this server puts them."""
        route = route_of(self.route, request)
        if route == "none":
            return Prepared(request).then(take_out_counters).then(_noted)
        chat = self.routes.to_chat(request, template, route)
        if route == "messages":
            placed = chat.then(take_out_counters).then(_noted)
        else:
            why = "this route moves every system turn into the first block"
            placed = chat.then(lambda messages: strict_hoist(messages, why)).then(merge_roles)
        return self.routes.to_render(placed, template, route)


def _noted(messages: Messages) -> Rewrite:
    return note_or_hoist(messages, after_tools=True)


def take_out_counters(messages: Messages) -> Rewrite:
    """Take the token counter out of the system turns; one that is empty without it vanishes."""
    output: list[Message] = []
    changed: list[Message] = []
    for message in messages:
        text = flat_text(message).text if is_system(message) else ""
        kept = without_counter(text)
        if kept == text:
            output.append(message)
            continue
        changed.append(message)
        if kept:
            output.append(message.replace(pieces=(), content=kept))
    return Rewrite(tuple(output), done("dropped", changed, "the token counter is taken out"))


def _flyto_mlx(name: str, options: Mapping[str, str]) -> Policy:
    multimodal = options["engine"] == "vlm"
    return FlytoMlx(name, options.get("route"), Routes(version="sept", multimodal=multimodal))


KINDS = (
    PolicyKind(
        "flyto-mlx",
        "flyto-mlx: notes on /v1/messages, also in tool results, without a probe; elsewhere the hoist",
        _flyto_mlx,
        source="panwudi/flyto-mlx 0.7.0",
        date="2026-10",
        evidence={"system turns on /v1/messages": "run", "conversions of the routes": "read"},
        cache="flyto-mlx",
        drift="A note moves from the turn before it to the user turn after it once that arrives; a refused "
        "note moves all of them into the first block.",
        options={"route": ROUTES, "engine": PolicyOption(("text", "vlm"), "text")},
        suite="forks",
    ),
)
