"""vLLM: on `/v1/messages` system turns stay where the template takes them, else they move to the front.

`/v1/messages` (vllm-project/vllm#44283 of 2026-06-02 moved all, #44602 of 2026-06-15 none, #46025 of
2026-06-18 tests the template first): texts are joined without any separator, blocks with Claude Code's
billing header are left out. `/v1/chat/completions` passes system turns on, so that a template which raises
answers with HTTP 400. `/v1/responses` folds all system and developer turns into one (#43590). See
docs/servers.md, section 10.

A request of another API sent to a route with `route=` is treated as if the client had sent the equivalent
body there: the system turns of an OpenAI chat transcript meet the rules of `/v1/messages` with
`route=messages`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...conversation import Message, Request
from ...templates.template import ChatTemplate
from ..api.anthropic_route import AnthropicRules
from ..api.responses_route import ResponsesRules
from ..api.routes import BlockJoins, as_chat, body_settings, route_of, with_kwargs
from ..base import Action, Messages, Prepared, Rewrite
from ..kind import ROUTES, AsksOnce, PassesOn, PolicyKind, PolicyOption
from ..rewrite.part_texts import merge_into_first, part_texts
from ..rewrite.system_turns import BETWEEN_SYSTEM_TEXTS, indices, is_system, keep
from ..rewrite.texts import Text, join, part_text, rebuilt
from ..rewrite.tool_arguments import parse_arguments
from .inline_detection import Detector, vllm_test

BILLING_HEADER = "x-anthropic-billing-header"
MOVES_ALL, MOVES_NONE, TESTS = "2026-06-02", "2026-06-15", "2026-06-18"
_ANTHROPIC = AnthropicRules(reasoning="field", images=True, dropped_system=())
_RESPONSES = ResponsesRules(images=True)


@dataclass(frozen=True, slots=True)
class Vllm:
    """vLLM's preparation of a request.

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
    detector: Detector = field(default_factory=lambda: Detector(vllm_test))

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return the request with its system turns where this server puts them."""
        route = route_of(self.route, request)
        start = as_chat(_without_billing(request), _ANTHROPIC, _RESPONSES, BlockJoins())
        if route in ("messages", "none"):
            start = start.then(lambda messages: self._place(messages, template))
        elif route == "responses":
            start = start.then(_fold)
        else:
            start = start.then(lambda messages: keep(messages, "passed on to the template"))
        if route != "none":
            start = start.then(parse_arguments)
        return with_kwargs(start, body_settings(request))

    def _place(self, messages: Messages, template: ChatTemplate) -> Rewrite:
        if self.version == MOVES_ALL:
            return merge_into_first(messages, _texts_of_old, "", "moved into the first system message")
        if self.version == MOVES_NONE:
            return _in_place(messages)
        others = [message for message in messages[1:] if is_system(message)]
        if not others:
            return _in_place(messages)
        why = "moved into the first system message, without a separator"
        return self.detector.place(
            messages,
            others,
            template,
            in_place=_in_place,
            moved=lambda given: merge_into_first(given, _texts_of, "", why),
        )


def _without_billing(request: Request) -> Request:
    """Return an Anthropic request without the blocks that carry Claude Code's billing header."""
    if request.dialect != "anthropic-messages":
        return request
    system = _unbilled(request.system)
    messages = tuple(
        message.replace(content=_unbilled(message.content)) if is_system(message) else message
        for message in request.messages
    )
    return request.replace(system=system, messages=messages)


def _unbilled(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    return [block for block in content if not (part_text(block) or "").startswith(BILLING_HEADER)]


def _texts_of(message: Message, leads: bool) -> list[Text]:
    """Return the texts that the server takes: those neither empty nor Claude Code's billing header."""
    return [text for text in part_texts(message) if text and not text.text.startswith(BILLING_HEADER)]


def _texts_of_old(message: Message, leads: bool) -> list[Text]:
    """Return the same as of 2026-06-02, when a content that is no list was taken as it is."""
    return _texts_of(message, leads) if isinstance(message.content, list) else part_texts(message)


def _in_place(messages: Messages) -> Rewrite:
    """Leave system turns where they are, each with its texts as one; one without text vanishes."""
    output: list[Message] = []
    actions: list[Action] = []
    for message in messages:
        if not is_system(message):
            output.append(message)
        elif texts := _texts_of(message, False):
            text = join(texts, "")
            plain = message.content == text.text
            output.append(message if plain else rebuilt(message, text.text, text.pieces()))
            actions.append(Action("kept", indices((message,)), "left in place"))
        else:
            actions.append(Action("dropped", indices((message,)), "no text that the server takes"))
    return Rewrite(tuple(output), tuple(actions))


def _fold(messages: Messages) -> Rewrite:
    """Fold the system turns of `/v1/responses`; what stands between the texts there is not established."""
    why = "folded into the first system message"
    return merge_into_first(messages, _texts_of_old, BETWEEN_SYSTEM_TEXTS, why)


KINDS = (
    PolicyKind(
        "vllm",
        "vLLM: /v1/messages in place where the template renders that, else one system block; chat as it is",
        lambda name, options: Vllm(name, options.get("route"), options["version"]),
        source="vllm-project/vllm#44283, #44602, #46025, #43590",
        date="2026-06-18",
        evidence={"messages": "reported"},
        cache="vllm:16",
        drift="Where the template raises, every new system turn on /v1/messages lengthens the first "
        "block, so that all behind it is computed again; else earlier text stays.",
        options={
            "route": PolicyOption(("chat", "messages", "responses", "none"), otherwise=ROUTES.otherwise),
            "version": PolicyOption((MOVES_ALL, MOVES_NONE, TESTS), TESTS),
            # --max-num-batched-tokens, which decides where states of recurrent layers are kept; the default
            # is that of GPUs of less than 70 GiB.
            "step": PolicyOption(("2048", "8192", "16384"), "2048"),
        },
        cache_options=("step",),
        shorthands={"chat-completions": "route=chat"},
        # The flag: waybarrios/vllm-mlx#394, which names vLLM's too.
        kwargs_setting="vllm serve … --default-chat-template-kwargs '{}'",
        checks=(
            AsksOnce("vllm", 2, vllm_test, "route=messages", joined=" without a separator"),
            PassesOn("vllm:chat-completions", 4, "HTTP 400", "route=chat"),
        ),
        suite="engines",
    ),
)
