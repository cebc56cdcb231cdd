"""SGLang: on `/v1/messages` system turns stay where the template writes them, else they move to the front.

sgl-project/sglang#26773 moved all; #28906 of 2026-06-22 tests the template first and moves them only where
the text of a later one does not come out. Moved texts are trimmed and joined by newlines behind the top-level
system text. `/v1/chat/completions` and `/v1/responses` pass system turns on. LMDeploy has the same test. See
docs/servers.md, section 11.

A request of another API sent to a route with `route=` is treated as if the client had sent the equivalent
body there; the system turns that stand first in an OpenAI chat transcript count as the top-level system text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...conversation import Message, Request
from ...templates.template import ChatTemplate
from ..api.anthropic_route import AnthropicRules
from ..api.responses_route import ResponsesRules
from ..api.routes import BlockJoins, as_chat, body_effort, route_of, with_kwargs
from ..base import Messages, Prepared, Rewrite
from ..kind import ROUTES, AsksOnce, PolicyKind, PolicyOption, ReuseReports
from ..rewrite.part_texts import merge_into_first, part_texts, stripped
from ..rewrite.reasoning import template_text
from ..rewrite.system_turns import is_system, keep
from ..rewrite.texts import Text
from ..rewrite.tool_arguments import parse_arguments
from .inline_detection import Detector, sglang_test

MOVES_ALL, TESTS = "2026-06-01", "2026-06-22"
_BETWEEN = "\n"
_JOINS = BlockJoins(between_system=_BETWEEN, between_results=" ")
#: For templates that take texts the server joins the parts of a content with a space.
_ANTHROPIC = AnthropicRules(
    reasoning="inline", images=True, between_blocks=" ", after_thinking=" ", dropped_system=()
)
_RESPONSES = ResponsesRules(images=True)


@dataclass(frozen=True, slots=True)
class Sglang:
    """SGLang's preparation of a request.

    Attributes:
        name: the policy as the person named it.
        route: `chat`, `messages`, `responses`, `none` for the system rules of `/v1/messages` alone; None for
            the request's own API.
        version: date of the change to `/v1/messages` that counts.
        detector: the test of the template, which the server makes once.
    """

    name: str
    route: str | None = None
    version: str = TESTS
    detector: Detector = field(default_factory=lambda: Detector(sglang_test))

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return the request with its system turns where this server puts them."""
        route = route_of(self.route, request)
        start = as_chat(request, _ANTHROPIC, _RESPONSES, _JOINS)
        if route in ("messages", "none"):
            start = start.then(lambda messages: self._place(messages, template))
        else:
            start = start.then(lambda messages: keep(messages, "passed on to the template"))
        if route != "none":
            start = start.then(parse_arguments)
        return with_kwargs(start, _body_kwargs(request, template))

    def _place(self, messages: Messages, template: ChatTemplate) -> Rewrite:
        why = "moved behind the top-level system text"
        others = [message for message in messages[1:] if is_system(message)]
        if self.version == MOVES_ALL or not others:
            return merge_into_first(messages, _texts_of, _BETWEEN, why)
        return self.detector.place(
            messages,
            others,
            template,
            in_place=lambda given: keep(given, "left in place"),
            moved=lambda given: merge_into_first(given, _texts_of, _BETWEEN, why),
        )


def _texts_of(message: Message, leads: bool) -> list[Text]:
    """Return the texts that are joined: top-level ones as they are, others trimmed, none empty."""
    texts = part_texts(message) if leads else [stripped(text) for text in part_texts(message)]
    return [text for text in texts if text and (not leads or text.text.strip())]


def _body_kwargs(request: Request, template: ChatTemplate) -> Mapping[str, Any]:
    """Return the kwargs that other fields of the body become; a template that calls it so gets `thinking`."""
    kwargs: dict[str, Any] = {}
    if (effort := body_effort(request)) is not None:
        kwargs["reasoning_effort"] = effort
    thinking = request.fields.get("thinking")
    if isinstance(thinking, Mapping) and thinking.get("type"):
        text = template_text(template)
        name = "thinking" if "enable_thinking" not in text and "thinking" in text else "enable_thinking"
        kwargs[name] = thinking["type"] != "disabled"
    return kwargs


KINDS = (
    PolicyKind(
        "sglang",
        "SGLang: /v1/messages in place where the template writes it, else one system block; chat as it is",
        lambda name, options: Sglang(name, options.get("route"), options["version"]),
        source="sgl-project/sglang#26773, #28906, python/sglang/srt/entrypoints/anthropic",
        date="2026-06-22",
        evidence={"messages": "read"},
        cache="sglang",
        drift="Where the template does not write later system turns, every new one on /v1/messages lengthens "
        "the first block, so that all behind it is computed again; else earlier text stays.",
        options={
            "route": PolicyOption(("chat", "messages", "responses", "none"), otherwise=ROUTES.otherwise),
            "version": PolicyOption((MOVES_ALL, TESTS), TESTS),
        },
        checks=(AsksOnce("sglang", 3, sglang_test, "route=messages"),),
        reuse_reports=ReuseReports("--enable-cache-report"),
        suite="engines",
    ),
)
