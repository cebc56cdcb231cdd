"""flyto-mlx: system turns become notes on `/v1/messages`, also in tool results; elsewhere they are hoisted.

A fork of oMLX that does not probe: on `/v1/messages` later system turns become notes even where the template
could leave them in place, and Claude Code's token counter is taken out of system texts. Its chat and
Responses routes hoist every system turn (docs/servers.md, section 2; panwudi/flyto-mlx 0.7.0, omlx/server.py
and omlx/api). A transcript sent to a route of another dialect is converted as on its own, and then gets that
route's rules for system turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...conversation import Message, Request
from ...errors import RenderError
from ...templates.template import ChatTemplate
from ..api.anthropic_route import convert_anthropic
from ..api.chat_route import ChatRules, extract, has_tool_parser, template_tools, with_checked_arguments
from ..api.responses_route import ResponsesRules, convert_responses
from ..api.routes import body_effort, route_of
from ..base import Action, Messages, Policy, Prepared, Rewrite
from ..kind import ROUTES, PolicyKind, PolicyOption
from ..rewrite.part_texts import lines_after_top, system_turn, without_empty_blocks
from ..rewrite.reasoning import detects_preserve_thinking, thinking_budget, thinking_type
from ..rewrite.role_merge import merge_roles
from ..rewrite.system_turns import done, indices, is_system, strict_hoist, system_runs
from ..rewrite.texts import flat_text
from ..rewrite.tool_arguments import parse_arguments
from ..rewrite.user_notes import note_or_hoist
from .omlx_routes import ANTHROPIC, bare_retry, still_partial, with_defaults, without_counter

BETWEEN_SYSTEM_TEXTS = "\n\n"
#: The reasoning efforts that the chat route takes, and the budget of tokens that each sets.
BUDGETS = {"off": None, "low": 512, "medium": 2048, "high": 8192}
#: What two further ones of Anthropic's API stand for.
ALIASES = {"xhigh": "high", "max": "high"}


@dataclass(frozen=True, slots=True)
class FlytoMlx:
    """flyto-mlx's preparation of a request for the template.

    Attributes:
        name: the policy as the person named it.
        route: `chat`, `messages` or `responses`; `none` for the rules of `messages` on messages as given;
            None for the route of the transcript's dialect.
        multimodal: whether the model runs in the engine for images, which keeps contents as lists.
    """

    name: str
    route: str | None = None
    multimodal: bool = False

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return the request with its system turns where this server puts them."""
        route = route_of(self.route, request)
        if route == "none":
            return Prepared(request).then(take_out_counters).then(_noted)
        chat = self._converted(request, template, route)
        if route == "messages":
            chat = chat.then(take_out_counters).then(join_leading).then(_noted).then(merge_roles)
        elif route == "responses":
            chat = chat.then(_all_in_front)
        else:
            why = "this route moves every system turn into the first block"
            chat = chat.then(lambda messages: strict_hoist(messages, why)).then(merge_roles)
        return self._rendered(chat, request, template, route)

    def _converted(self, request: Request, template: ChatTemplate, route: str) -> Prepared:
        """Return a request in chat form, its system turns where they stand."""
        native = detects_preserve_thinking(template)
        if request.dialect == "anthropic-messages":
            anthropic = replace(
                ANTHROPIC,
                tool_role=has_tool_parser(template),
                reasoning="field" if native else "inline",
                images=self.multimodal,
                no_description=None,
            )
            given = tuple(map(without_empty_blocks, request.messages))
            chat = convert_anthropic(request.replace(messages=given), anthropic)
        elif request.dialect == "openai-responses":
            responses = ResponsesRules(images=self.multimodal, list_outputs="json", calls_reason=False)
            chat = convert_responses(request, responses)
        elif route == "chat":
            rules = ChatRules(
                tool_role=has_tool_parser(template),
                reasoning="field" if native else "inline",
                images=self.multimodal,
            )
            chat = with_checked_arguments(Prepared(request)).then(lambda given: extract(given, rules))
        else:
            chat = Prepared(request).then(parse_arguments)
        tools = template_tools(chat.request.tools, describe=False)
        return replace(chat, request=chat.request.replace(tools=tools))

    def _rendered(self, chat: Prepared, request: Request, template: ChatTemplate, route: str) -> Prepared:
        """Return what the template gets in the end: with the kwargs of the route."""
        error, budget = chat.error, thinking_budget(request.fields)
        kwargs: dict[str, Any] = {} if route == "responses" else dict(request.kwargs)
        effort = _spelled(body_effort(request))
        if route == "messages":
            effort = ALIASES.get(effort or "", effort)
        elif route == "chat" and effort is not None and effort not in BUDGETS:
            error = error or RenderError("HTTP 422", f"the server knows no reasoning effort {effort!r}")
        if effort in BUDGETS and effort != "off":
            kwargs.setdefault("reasoning_effort", effort)
        if route == "chat":
            budget = budget or BUDGETS.get(effort or "off")
            if effort == "off" and budget is None:
                kwargs["enable_thinking"] = False
        if route == "messages" and (thinking := thinking_type(request.fields)) is not None:
            kwargs["enable_thinking"] = thinking
        fresh = [f"{name}={value!r}" for name, value in kwargs.items() if request.kwargs.get(name) != value]
        told = (
            [Action("kwargs", (), f"{', '.join(fresh)}: from other fields of the request")] if fresh else []
        )
        given, more = with_defaults(kwargs, budget, template)
        partial = route == "chat" and not self.multimodal and still_partial(chat.request, request)
        after = chat.request.replace(kwargs=given, partial=partial)
        return replace(
            chat,
            request=after,
            actions=(*chat.actions, *told, *more),
            retries=bare_retry(after, keep_tools=self.multimodal),
            error=error,
        )


def _noted(messages: Messages) -> Rewrite:
    return note_or_hoist(messages, after_tools=True)


def _spelled(effort: Any) -> str | None:
    return effort.strip().lower() if isinstance(effort, str) else None


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


def join_leading(messages: Messages) -> Rewrite:
    """Join the system turns that stand first: the top-level text, an empty line, the others line by line."""
    runs = system_runs(messages)
    if not runs or not runs[0].leads:
        return Rewrite(messages)
    run = runs[0]
    first = lines_after_top(run.messages)
    if first is None or len(run.messages) == 1:
        return Rewrite(messages)
    merged = done("merged", run.messages, "the system turns that stand first are joined")
    return Rewrite((first, *messages[run.stop :]), merged)


def _all_in_front(messages: Messages) -> Rewrite:
    """Join all system turns into the first message, those without text too."""
    systems = [message for message in messages if is_system(message)]
    if not systems:
        return Rewrite(messages)
    first = system_turn([(message, flat_text(message)) for message in systems], BETWEEN_SYSTEM_TEXTS)
    others = tuple(message for message in messages if not is_system(message))
    why = "this route moves every system turn into the first block"
    leading = messages[: len(systems)] == tuple(systems)
    action = Action("kept" if leading else "hoisted", indices(systems), why)
    return Rewrite((first, *others), (action,))


def _flyto_mlx(name: str, options: Mapping[str, str]) -> Policy:
    return FlytoMlx(name, options.get("route"), options["engine"] == "vlm")


KINDS = (
    PolicyKind(
        "flyto-mlx",
        "flyto-mlx: notes on /v1/messages, also in tool results, without a probe; elsewhere the hoist",
        _flyto_mlx,
        source="panwudi/flyto-mlx 0.7.0",
        date="2026-10",
        evidence={"system turns on /v1/messages": "run", "conversions of the routes": "run"},
        cache="flyto-mlx",
        drift="A note moves from the turn before it to the user turn after it once that arrives; a refused "
        "note moves all of them into the first block.",
        options={"route": ROUTES, "engine": PolicyOption(("text", "vlm"), "text")},
        suite="forks",
    ),
)
