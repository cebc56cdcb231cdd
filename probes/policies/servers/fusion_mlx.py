"""fusion-mlx: one system message, always the first, on every route.

All system texts are joined into the first message; a conversation without any gets a default one
(docs/servers.md, section 3; dahai80/fusion-mlx 0.10.24). Requests of other dialects are converted as oMLX
does, whose fork it is; that part was not compared with the server.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...conversation import TOP_LEVEL, Message, Request
from ...templates.template import ChatTemplate
from ..api.anthropic_route import AnthropicRules
from ..api.chat_route import supports_tools
from ..api.responses_route import ResponsesRules
from ..api.routes import as_chat
from ..base import Action, Messages, Prepared, Retry, Rewrite
from ..kind import ROUTES, PolicyKind
from ..rewrite.reasoning import detects_preserve_thinking
from ..rewrite.system_turns import is_system, keep, strict_hoist
from ..rewrite.texts import flat_text

DEFAULT_SYSTEM = "You are a helpful assistant."


@dataclass(frozen=True, slots=True)
class FusionMlx:
    """fusion-mlx's preparation of a request for the template."""

    name: str

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return the request with exactly one system message, the first."""
        detected = detects_preserve_thinking(template)
        rules = AnthropicRules(
            tool_role=supports_tools(template), reasoning="field" if detected else "inline"
        )
        placed = as_chat(request, rules, ResponsesRules()).then(one_system_message)
        if detected and "preserve_thinking" not in request.kwargs:
            kwargs = {**request.kwargs, "preserve_thinking": True}
            why = "preserve_thinking=True, because the template mentions it"
            actions = (*placed.actions, Action("kwargs", (), why))
            placed = replace(placed, request=placed.request.replace(kwargs=kwargs), actions=actions)
        return replace(placed, retries=_retries(placed.request))


def one_system_message(messages: Messages) -> Rewrite:
    """Join all system texts into the first message, or insert the default one where there is none."""
    systems = [message for message in messages if is_system(message)]
    others = tuple(message for message in messages if not is_system(message))
    if any(flat_text(message) for message in systems):
        return strict_hoist(messages, "moved into the first system block")
    if systems:
        empty = Message({"role": "system", "content": ""}, systems[0].index)
        first = systems[0] if systems[0].data == empty.data else empty
        return Rewrite((first, *others), keep(messages, "kept, although empty").actions)
    if not others:
        return Rewrite(messages)
    default = Message({"role": "system", "content": DEFAULT_SYSTEM}, TOP_LEVEL)
    return Rewrite(
        (default, *others), (Action("inserted", (), "the server's own system message comes first"),)
    )


def _retries(request: Request) -> tuple[Retry, ...]:
    retries = []
    if request.kwargs:
        action = Action("retried", (), "without chat-template kwargs after a TypeError")
        retries.append(Retry(request.replace(kwargs={}), action, kind="TypeError"))
    if request.tools:
        action = Action("retried", (), "without chat-template kwargs and tools after a TypeError")
        retries.append(Retry(request.replace(kwargs={}, tools=None), action, kind="TypeError"))
    return tuple(retries)


KINDS = (
    PolicyKind(
        "fusion-mlx",
        "fusion-mlx: one system message, always the first; a default one where there is none",
        lambda name, options: FusionMlx(name),
        source="dahai80/fusion-mlx 0.10.24",
        date="2026-10",
        evidence={"system turns": "run", "conversions of the routes": "inferred"},
        cache="fusion-mlx",
        drift="Every new system turn makes the first message longer, so that everything after it is another "
        "prompt.",
        options={"route": ROUTES},
        suite="forks",
    ),
)
