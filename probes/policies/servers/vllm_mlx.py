"""vllm-mlx: one leading system message on two routes, neighbours joined in place on the chat route.

`/v1/messages` moves every system text into the first message; so does `/v1/responses`, which trims them. Both
chat completions and messages then join neighbouring plain turns of one role. Nothing probes the template, so
on the chat route a strict template raises. `route=none` is the hoist of the messages route alone
(docs/servers.md, section 5; waybarrios/vllm-mlx, vllm_mlx/api/anthropic_adapter.py and vllm_mlx/server.py,
release 0.6.0).

With a text model (`model=text`) the server makes one text of each content list, and keeps of a message only
role, content, tool calls and their ids. With one that sees (`model=vlm`) it hands lists on.

`engine` is the server's engine and decides what its cache keeps: the simple one starts by default, the
batched one with `--continuous-batching`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...conversation import Message, Request
from ...templates.template import ChatTemplate
from ..api.anthropic_route import AnthropicRules
from ..api.responses_route import ResponsesRules
from ..api.routes import BlockJoins, as_chat, route_of, with_kwargs
from ..base import Action, Messages, Prepared, Retry, Rewrite
from ..kind import ROUTES, PolicyKind, PolicyOption
from ..rewrite.part_texts import as_system, merge_into_first, stripped, whole_text
from ..rewrite.preparation import extract_text, never_continued, thinks_by_default
from ..rewrite.system_turns import each_changed, has_role, is_system, join_neighbours, keep_each
from ..rewrite.texts import Text, content_text, join, joined_contents, rebuilt
from ..rewrite.tool_arguments import as_value, parse_arguments

BETWEEN_TEXTS = "\n\n"
BILLING_LINE = re.compile(r"(?im)^x-anthropic-billing-header:[^\n]*(?:\n|$)")
ANTHROPIC = AnthropicRules(reasoning="dropped", images=True, results_last=True, dropped_system=())
RESPONSES = ResponsesRules(reasoning=False, join_calls=False)
JOINS = BlockJoins("\n")


@dataclass(frozen=True, slots=True)
class VllmMlx:
    """vllm-mlx's preparation of messages.

    Attributes:
        name: the policy as the person named it.
        route: the server's route; None for that of the request's dialect.
        text_model: the model is one for texts, for which the server makes texts of all contents.
    """

    name: str
    route: str | None = None
    text_model: bool = True

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return the request as the server's template gets it."""
        route = route_of(self.route, request)
        if route == "none":
            return Prepared(request).then(hoist)
        done = as_chat(_reasoning_as_turns(request), ANTHROPIC, RESPONSES, JOINS).then(as_system)
        if route == "messages":
            done = done.then(hoist)
        elif route == "responses":
            done = done.then(_hoist_trimmed)
        if self.text_model:
            done = done.then(extract_text)
        if route != "responses":
            done = done.then(join_plain_turns)
        if route == "chat":
            done = done.then(keep_each)
        done = done.then(drop_billing_lines).then(lambda given: parse_arguments(given, _arguments))
        asked = request.fields.get("enable_thinking") if route == "chat" else None
        thinks = asked if isinstance(asked, bool) else thinks_by_default(request)
        done = with_kwargs(never_continued(done), {"enable_thinking": thinks}, "the server always sets it")
        return replace(done, retries=(_without_extras(done.request),))


def hoist(messages: Messages) -> Rewrite:
    """Move all system texts into the first message; where there is none, an empty system message stays."""
    after = merge_into_first(messages, whole_text, BETWEEN_TEXTS, "moved into the first system message")
    systems = [message for message in messages if is_system(message)]
    if not systems or (after.messages and is_system(after.messages[0])):
        return after
    why = "the server keeps an empty system message"
    empty = Message({"role": "system", "content": ""}, systems[0].index)
    return Rewrite((empty, *after.messages), (*after.actions, Action("kept", (empty.index,), why)))


def join_plain_turns(messages: Messages) -> Rewrite:
    """Join neighbouring system, user and assistant turns of one role whose contents are both strings.

    A turn that calls tools stays apart. The keys of the earlier turn survive.
    """
    return join_neighbours(messages, _joined)


def drop_billing_lines(messages: Messages) -> Rewrite:
    """Leave the lines with Claude Code's billing header out of system texts."""
    why = "the server leaves out the line with the billing header, which changes with every request"
    return each_changed(messages, _without_billing, "dropped", why)


def _hoist_trimmed(messages: Messages) -> Rewrite:
    def trimmed(message: Message, leads: bool) -> list[Text]:
        return [text for given in whole_text(message, leads) if (text := stripped(given))]

    why = "trimmed and moved into the first system message"
    return merge_into_first(messages, trimmed, BETWEEN_TEXTS, why)


def _joined(earlier: Message, later: Message) -> Message | None:
    same = any(has_role(earlier, role) and has_role(later, role) for role in ("system", "user", "assistant"))
    calls = earlier.data.get("tool_calls") or later.data.get("tool_calls")
    if not same or calls or not isinstance(earlier.content, str) or not isinstance(later.content, str):
        return None
    return joined_contents(earlier, later, BETWEEN_TEXTS)


def _without_billing(message: Message) -> Message:
    content = message.content
    if not has_role(message, "system") or not isinstance(content, str):
        return message
    matches = list(BILLING_LINE.finditer(content))
    if not matches:
        return message
    text = content_text(message, None, content)
    starts = [0, *(match.end() for match in matches)]
    stops = [*(match.start() for match in matches), len(content)]
    kept = [text.cut(start, stop) for start, stop in zip(starts, stops, strict=True) if start < stop]
    left = join(kept, "") if kept else Text("", ((0, message.index),))
    return rebuilt(message, left.text, left.pieces())


def _reasoning_as_turns(request: Request) -> Request:
    """Return a Responses request with readable reasoning items as assistant messages."""
    if request.dialect != "openai-responses":
        return request
    return request.replace(messages=tuple(_reasoning_as_turn(item) for item in request.messages))


def _reasoning_as_turn(item: Message) -> Message:
    if item.data.get("type") != "reasoning" or not isinstance(item.content, list):
        return item
    texts = [str(part.get("text") or "") for part in item.content if isinstance(part, Mapping)]
    if not any(texts):
        return item
    return Message({"type": "message", "role": "assistant", "content": "\n".join(texts)}, item.index)


def _arguments(text: str) -> Any:
    """Return arguments that are no JSON object: other JSON as it is, a text under the key `value`."""
    try:
        loaded = json.loads(text)
    except (ValueError, RecursionError):
        return {"value": text}
    return as_value(loaded) if isinstance(loaded, str) else loaded


def _without_extras(request: Request) -> Retry:
    why = "after a TypeError the server renders again without tools and chat-template kwargs"
    fewer = request.replace(tools=None, kwargs={})
    return Retry(fewer, Action("retried", (), why), kind="TypeError", final=True)


KINDS = (
    PolicyKind(
        "vllm-mlx",
        "vllm-mlx: the hoist on /v1/messages and /v1/responses; neighbours joined in place on chat",
        lambda name, options: VllmMlx(name, options.get("route"), text_model=options["model"] == "text"),
        source="waybarrios/vllm-mlx 0.6.0",
        date="2026-10",
        evidence={"system turns": "run", "conversions of the routes": "run"},
        cache="vllm-mlx",
        drift="each later system turn on /v1/messages or /v1/responses lengthens the first system message; "
        "on chat one that joins the one before it lengthens that",
        options={
            "route": ROUTES,
            "model": PolicyOption(("text", "vlm"), "text"),
            "engine": PolicyOption(("simple", "batched"), "simple"),
        },
        cache_options=("engine",),
        # The flag: waybarrios/vllm-mlx#394.
        kwargs_setting="vllm-mlx serve … --default-chat-template-kwargs '{}'",
        suite="local",
    ),
)
