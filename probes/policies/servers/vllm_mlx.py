"""vllm-mlx: one leading system message on two routes, neighbours joined in place on the chat route.

`/v1/messages` moves every system text into the first message; so does `/v1/responses`, which trims them. Both
chat completions and messages then join neighbouring plain turns of one role. Nothing probes the template, so
on the chat route a strict template raises. `route=none` is the hoist of the messages route alone
(docs/servers.md, section 5; waybarrios/vllm-mlx, vllm_mlx/api/anthropic_adapter.py and vllm_mlx/server.py,
release 0.6.0).

The two engines for text models, `simple`, which serves by default, and `batched`
(`--continuous-batching`), make one text of each content list, and keep of a message only role, content, tool
calls and their ids. Without a tool parser that can do otherwise (`tools=native`), calls and results become
text. `engine=vlm` is the engine for models that see, which hands lists and calls on.
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
from ..api.chat_route import template_tools
from ..api.responses_route import ResponsesRules
from ..api.routes import as_chat, route_of, with_kwargs
from ..base import Action, Messages, Prepared, Retry, Rewrite
from ..kind import ROUTES, PolicyKind, PolicyOption, ReuseReports
from ..rewrite.part_texts import as_system, merge_into_first, stripped, whole_text
from ..rewrite.preparation import extract_text, never_continued, thinks_by_default
from ..rewrite.system_turns import each_changed, has_role, is_system, join_neighbours, keep_each
from ..rewrite.texts import Text, content_text, join, joined_contents, rebuilt
from ..rewrite.tool_arguments import as_value, parse_arguments

BETWEEN_TEXTS = "\n\n"
BILLING_LINE = re.compile(r"(?im)^x-anthropic-billing-header:[^\n]*(?:\n|$)")
ANTHROPIC = AnthropicRules(
    reasoning="dropped", images=True, results_last=True, dropped_system=(), empty_blocks=False
)
RESPONSES = ResponsesRules(
    reasoning=False, join_calls=False, list_outputs="parts", raw_arguments=True, empty_parts=False
)
#: The fields of a part of a content list, in the order in which the server's class has them.
PART_FIELDS = ("type", "text", "image_url", "video", "video_url", "audio_url")


@dataclass(frozen=True, slots=True)
class VllmMlx:
    """vllm-mlx's preparation of messages.

    Attributes:
        name: the policy as the person named it.
        route: the server's route; None for that of the request's dialect.
        engine: `simple` and `batched` are for text models, `vlm` for those that see.
        native_tools: whether the tool parser keeps the structure of calls and results.
    """

    name: str
    route: str | None = None
    engine: str = "simple"
    native_tools: bool = False

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return the request as the server's template gets it."""
        route = route_of(self.route, request)
        if route == "none":
            return Prepared(request).then(hoist)
        done = as_chat(_reasoning_as_turns(request), ANTHROPIC, RESPONSES).then(as_system)
        tools = template_tools(done.request.tools, describe=False)
        done = replace(done, request=done.request.replace(tools=tools))
        if route == "messages":
            done = done.then(hoist)
        elif route == "responses":
            done = done.then(_hoist_trimmed)
        if self.engine != "vlm":
            done = done.then(self._extracted)
        if route != "responses":
            done = done.then(join_plain_turns)
        if route == "chat":
            done = done.then(keep_each)
        done = done.then(drop_billing_lines).then(lambda given: parse_arguments(given, _arguments))
        done = never_continued(done)
        if route == "chat" and (effort := request.fields.get("reasoning_effort")) is not None:
            done = with_kwargs(done, {"reasoning_effort": effort})
        asked = request.fields.get("enable_thinking") if route == "chat" else None
        thinks = asked if isinstance(asked, bool) else thinks_by_default(request)
        if not self._plain(done.request):
            done = with_kwargs(done, {"enable_thinking": thinks}, "the server always sets it")
        return replace(done, retries=(_without_extras(done.request),))

    def _extracted(self, messages: Messages) -> Rewrite:
        return extract_text(
            messages,
            native=self.native_tools,
            list_result=_printed_each if self.native_tools else _printed,
        )

    def _plain(self, request: Request) -> bool:
        """Whether the simple engine renders without `enable_thinking`: no tools, and the answer no stream.

        A transcript without bodies does not tell; clients stream.
        """
        told = "model" in request.fields and not request.fields.get("stream")
        return self.engine == "simple" and not request.tools and told


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


def _printed(parts: list[Any]) -> str:
    """Return a list of parts as Python prints the server's objects."""
    printed = (f"ContentPart({_fields(part, ', ')})" for part in parts)
    return f"[{', '.join(printed)}]"


def _printed_each(parts: list[Any]) -> list[str]:
    """Return parts as texts, each as Python prints the server's object."""
    return [_fields(part, " ") for part in parts]


def _fields(part: Any, between: str) -> str:
    if not isinstance(part, Mapping):
        return str(part)  # of a body that the server does not take
    return between.join(f"{name}={part.get(name)!r}" for name in PART_FIELDS)


def _without_extras(request: Request) -> Retry:
    why = "after a TypeError the server renders again without tools and chat-template kwargs"
    fewer = request.replace(tools=None, kwargs={})
    return Retry(fewer, Action("retried", (), why), kind="TypeError", final=True)


KINDS = (
    PolicyKind(
        "vllm-mlx",
        "vllm-mlx: the hoist on /v1/messages and /v1/responses; neighbours joined in place on chat",
        lambda name, options: VllmMlx(
            name, options.get("route"), options["engine"], options["tools"] == "native"
        ),
        source="waybarrios/vllm-mlx 0.6.0",
        date="2026-10",
        evidence={"system turns": "run", "conversions of the routes": "run"},
        cache="vllm-mlx",
        drift="each later system turn on /v1/messages or /v1/responses lengthens the first system message; "
        "on chat one that joins the one before it lengthens that",
        options={
            "route": ROUTES,
            "engine": PolicyOption(("simple", "batched", "vlm"), "simple"),
            "tools": PolicyOption(("text", "native"), "text"),
        },
        cache_options=("engine",),
        # The flag: waybarrios/vllm-mlx#394.
        kwargs_setting="vllm-mlx serve … --default-chat-template-kwargs '{}'",
        reuse_reports=ReuseReports(answers=False, log=True),
        suite="local",
    ),
)
