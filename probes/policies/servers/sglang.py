"""SGLang: on `/v1/messages` system turns stay where the template writes them, else they move to the front.

sgl-project/sglang#26773 moved all; #28906 of 2026-06-22 tests the template first and moves them only where
the text of a later one does not come out. Moved texts are trimmed and joined by newlines behind the top-level
system text. `/v1/responses` asks the same test, and joins all by an empty line; `/v1/chat/completions` passes
system turns on. LMDeploy has the same test. What all routes end in is in sglang_chat.py. See docs/servers.md,
section 11.

A request of another API sent to a route with `route=` is treated as if the client had sent the equivalent
body there; the system turns that stand first in an OpenAI chat transcript count as the top-level system text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...conversation import TOP_LEVEL, Message, Request
from ...templates.template import ChatTemplate
from ..api.anthropic_route import SERVER_TOOLS, AnthropicRules, convert_anthropic, object_schema
from ..api.routes import body_effort, route_of, with_kwargs
from ..base import Messages, Prepared, Rewrite
from ..kind import ROUTES, AsksOnce, PolicyKind, PolicyOption, ReuseReports
from ..rewrite.part_texts import merge_into_first, part_texts, stripped
from ..rewrite.reasoning import template_text
from ..rewrite.system_turns import is_system, keep
from ..rewrite.texts import Text, part_text
from .inline_detection import Detector, sglang_test
from .sglang_chat import chat_tools, settings, to_template
from .sglang_responses import convert_responses, joined_in_front

MOVES_ALL, TESTS, NEWEST = "2026-06-01", "2026-06-22", "0.5.23"
_BETWEEN = "\n"
_ANTHROPIC = AnthropicRules(
    reasoning="dropped", images=True, parts=True, result_parts=True, dropped_system=()
)


@dataclass(frozen=True, slots=True)
class Sglang:
    """SGLang's preparation of a request.

    Attributes:
        name: the policy as the person named it.
        route: `chat`, `messages`, `responses`, `none` for the system rules of `/v1/messages` alone; None for
            the request's own API.
        version: the release, or the date of the change to `/v1/messages`, that counts.
        parser: whether the server has a reasoning parser that reads think tags (`--reasoning-parser`).
        detector: the test of the template, which the server makes once.
    """

    name: str
    route: str | None = None
    version: str = NEWEST
    parser: bool = False
    detector: Detector = field(default_factory=lambda: Detector(sglang_test))

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return the request with its system turns where this server puts them."""
        route = route_of(self.route, request)
        start = self._as_chat(request)
        if start.error:
            return start
        if route in ("messages", "none"):
            first = request.dialect == "openai-chat"
            start = start.then(lambda messages: self._place(messages, template, first))
        elif route == "responses":
            start = start.then(lambda messages: self._place_items(messages, template))
        else:
            start = start.then(lambda messages: keep(messages, "passed on to the template"))
        if route == "none":
            return start
        done = to_template(start, template)
        return self._with_settings(done, request, template)

    def _as_chat(self, request: Request) -> Prepared:
        if request.dialect == "openai-responses":
            start = convert_responses(request)
        elif request.dialect == "anthropic-messages":
            start = convert_anthropic(self._one_system_text(request), _ANTHROPIC)
            start = replace(start, request=start.request.replace(tools=_anthropic_tools(request.tools)))
        else:
            start = Prepared(request)
        return replace(start, request=start.request.replace(tools=chat_tools(start.request.tools)))

    def _one_system_text(self, request: Request) -> Request:
        system = request.system
        if isinstance(system, list):
            system = _BETWEEN.join(text for block in system if (text := part_text(block)))
        elif isinstance(system, str) and not system.strip():
            system = None
        messages = tuple(map(_with_thinking_first, request.messages)) if self.parser else request.messages
        return request.replace(system=system, messages=messages)

    def _place(self, messages: Messages, template: ChatTemplate, first_is_top: bool) -> Rewrite:
        why = "moved behind the top-level system text"
        later = messages[1:] if first_is_top else messages
        others = [message for message in later if is_system(message) and message.index != TOP_LEVEL]

        def texts_of(message: Message, leads: bool) -> list[Text]:
            return _texts_of(message, message.index == TOP_LEVEL or (leads and first_is_top))

        if self.version == MOVES_ALL or not others:
            return merge_into_first(messages, texts_of, _BETWEEN, why)
        return self.detector.place(
            messages,
            others,
            template,
            in_place=lambda given: keep(given, "left in place"),
            moved=lambda given: merge_into_first(given, texts_of, _BETWEEN, why),
        )

    def _place_items(self, messages: Messages, template: ChatTemplate) -> Rewrite:
        systems = [message for message in messages if is_system(message)]
        if not systems:
            return Rewrite(messages)
        return self.detector.place(
            messages,
            systems,
            template,
            in_place=lambda given: keep(given, "left in place"),
            moved=joined_in_front,
        )

    def _with_settings(self, done: Prepared, request: Request, template: ChatTemplate) -> Prepared:
        effort = body_effort(request)
        if request.dialect != "anthropic-messages":
            return with_kwargs(done, settings(request, template, effort, True))
        kwargs = dict(settings(request, template, "max" if effort == "xhigh" else effort, False))
        own = done.request.replace(kwargs={})  # this route has none of its own
        thinking = request.fields.get("thinking")
        if isinstance(thinking, Mapping) and thinking.get("type"):
            on = thinking["type"] != "disabled"
            if self.parser:
                kwargs[_toggle(template)] = on
            elif on:
                done = done.refused(
                    400, "thinking needs a reasoning parser (--reasoning-parser), and there is none"
                )
        return with_kwargs(replace(done, request=own), kwargs)


def _anthropic_tools(tools: Iterable[Mapping[str, Any]] | None) -> tuple[Mapping[str, Any], ...]:
    """Return an Anthropic request's tools in chat form, without those that Anthropic's machines run."""
    written = []
    for tool in tools or ():
        if not str(tool.get("type") or "").startswith(SERVER_TOOLS):
            function = {"name": tool.get("name"), "description": tool.get("description") or ""}
            function |= {"parameters": object_schema(tool), "strict": bool(tool.get("strict"))}
            written.append(
                {"type": "function", "function": function, "defer_loading": tool.get("defer_loading")}
            )
    return tuple(written)


def _with_thinking_first(message: Message) -> Message:
    """Return an assistant's message with its thinking as its first text, in the tags of the parser."""
    blocks = message.content
    if message.data.get("role") != "assistant" or not isinstance(blocks, list):
        return message
    thoughts = [block["thinking"] for block in blocks if _is_thinking(block) and block.get("thinking")]
    if not thoughts:
        return message
    framed = f"<think>{_BETWEEN.join(thoughts)}\n</think>"
    others = [block for block in blocks if not _is_thinking(block)]
    return message.replace(content=[{"type": "text", "text": framed}, *others])


def _is_thinking(block: Any) -> bool:
    return isinstance(block, Mapping) and block.get("type") == "thinking"


def _texts_of(message: Message, as_it_is: bool) -> list[Text]:
    """Return the texts that are joined: top-level ones as they are, others trimmed, none empty."""
    texts = part_texts(message) if as_it_is else [stripped(text) for text in part_texts(message)]
    return [text for text in texts if text and (not as_it_is or text.text.strip())]


def _toggle(template: ChatTemplate) -> str:
    """Return the variable that turns thinking on in this template."""
    text = template_text(template)
    return "thinking" if "enable_thinking" not in text and "thinking" in text else "enable_thinking"


KINDS = (
    PolicyKind(
        "sglang",
        "SGLang: /v1/messages in place where the template writes it, else one system block; chat as it is",
        lambda name, options: Sglang(
            name, options.get("route"), options["version"], options["reasoning-parser"] == "think"
        ),
        source="sglang 0.5.23; sgl-project/sglang#26773, #28906",
        date="2026-12-01",
        evidence={"messages": "run", "chat": "run", "responses": "run", "older versions": "reported"},
        cache="sglang",
        drift="Where the template does not write later system turns, every new one on /v1/messages lengthens "
        "the first block, so that all behind it is computed again; else earlier text stays.",
        options={
            "route": PolicyOption(("chat", "messages", "responses", "none"), otherwise=ROUTES.otherwise),
            "version": PolicyOption((MOVES_ALL, TESTS, NEWEST), NEWEST),
            "reasoning-parser": PolicyOption(("none", "think"), "none"),
        },
        checks=(AsksOnce("sglang", 3, sglang_test, "route=messages"),),
        reuse_reports=ReuseReports("--enable-cache-report"),
        suite="engines",
    ),
)
