"""LM Studio: messages reach the template as they are, so that a strict one raises.

No source is published. Issue threads tell that a developer message of `/v1/responses` becomes a system
message where it stands, and that the template's complaint about it is answered with HTTP 500; the same is
reported for Claude Code. The workaround is to edit the template (docs/servers.md, section 13;
lmstudio-ai/lmstudio-bug-tracker#2298, #2204).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...conversation import Request
from ...templates.template import ChatTemplate
from ..api.anthropic_route import AnthropicRules
from ..api.responses_route import ResponsesRules
from ..api.routes import BlockJoins, as_chat, body_settings, route_of, with_kwargs
from ..base import Prepared
from ..kind import ROUTES, PassesOn, PolicyKind, PolicyOption
from ..rewrite.part_texts import as_system
from ..rewrite.system_turns import keep

ANTHROPIC = AnthropicRules(reasoning="field", images=True, dropped_system=())
RESPONSES = ResponsesRules(images=True)
JOINS = BlockJoins("\n")


@dataclass(frozen=True, slots=True)
class LmStudio:
    """What is known of LM Studio's preparation of messages.

    Attributes:
        name: the policy as the person named it.
        route: the server's route; None for that of the request's dialect.
    """

    name: str
    route: str | None = None

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return the request in chat form, its system turns where they stand."""
        route = route_of(self.route, request)
        start = Prepared(request) if route == "none" else as_chat(request, ANTHROPIC, RESPONSES, JOINS)
        if route == "responses":
            start = start.then(as_system)
        start = with_kwargs(start, body_settings(request))
        return start.then(lambda given: keep(given, "passed on where it stands"))


KINDS = (
    PolicyKind(
        "lm-studio",
        "LM Studio: passes messages on; a strict template raises (HTTP 500)",
        lambda name, options: LmStudio(name, options.get("route")),
        source="lmstudio-ai/lmstudio-bug-tracker#2298",
        date="2026-08-18",
        evidence={"messages": "reported"},
        cache="llama.cpp",
        drift="none of its own: what a message becomes depends on that message alone",
        # How it chooses among several is not known.
        options={"route": ROUTES, "slots": PolicyOption(("1", "2", "4", "8"), "1")},
        cache_options=("slots",),
        aliases=("lms",),
        checks=(PassesOn("lm-studio", 7, "HTTP 500"),),
        suite="local",
    ),
)
