"""vLLM: on `/v1/messages` system turns stay where the template takes them, else they move to the front.

`/v1/messages` (vllm-project/vllm#44283 of 2026-06-02 moved all, #44602 of 2026-06-15 none, #46025 of
2026-06-18 tests the template first): texts are joined without any separator, blocks with Claude Code's
billing header are left out. `/v1/chat/completions` and `/v1/responses` leave system turns where they stand,
so that a template which raises answers with HTTP 400; but a developer's turn that the template does not know
takes them all to the front. What all routes share is in vllm_renderer.py. See docs/servers.md, section 10.

A request of another API sent to a route with `route=` is treated as if the client had sent the equivalent
body there: the system turns of an OpenAI chat transcript meet the rules of `/v1/messages` with
`route=messages`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...conversation import TOP_LEVEL, Message, Request
from ...errors import RenderError
from ...templates.template import ChatTemplate
from ..api.anthropic_route import AnthropicRules, convert_anthropic, object_schema
from ..api.routes import BlockJoins, body_effort, joined_blocks, route_of
from ..base import Action, Messages, Prepared, Rewrite
from ..kind import ROUTES, AsksOnce, PassesOn, PolicyKind, PolicyOption, ReuseReports
from ..rewrite.part_texts import merge_into_first, part_texts
from ..rewrite.system_turns import each_changed, has_role, indices, is_system, keep
from ..rewrite.texts import Text, join, part_text, rebuilt
from .inline_detection import Detector, vllm_test
from .vllm_renderer import (
    BILLING_HEADER,
    chat_tools,
    function_tool,
    takes_lists,
    through_renderer,
    with_settings,
)
from .vllm_responses import continues, convert_responses

MOVES_ALL, MOVES_NONE, TESTS, NEWEST = "2026-06-02", "2026-06-15", "2026-06-18", "0.33.0"
EFFORTS = ("none", "low", "medium", "high", "xhigh", "max")
_ANTHROPIC = AnthropicRules(
    reasoning="field",
    images=True,
    results_first=True,
    parts=True,
    empty_texts=False,
    between_thoughts="",
    dropped_system=(),
)


@dataclass(frozen=True, slots=True)
class Vllm:
    """vLLM's preparation of a request.

    Attributes:
        name: the policy as the person named it.
        route: `chat`, `messages`, `responses`, `none` for the system rules of `/v1/messages` alone; None for
            the request's own API.
        version: the release, or the date of the change to `/v1/messages`, that counts.
        form: what `--chat-template-content-format` says.
        disabled: the effort that `thinking.type: disabled` becomes; `auto` for what the server finds out.
        detector: the test of the template, which the server makes once.
    """

    name: str
    route: str | None = None
    version: str = NEWEST
    form: str = "auto"
    disabled: str = "auto"
    detector: Detector = field(default_factory=lambda: Detector(vllm_test))

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return the request with its system turns where this server puts them."""
        route = route_of(self.route, request)
        start = _as_chat(request)
        if request.dialect == "openai-chat" and self.version != NEWEST:
            start = start.then(_without_reasoning_content)
        elif route != "none":
            start = start.then(_with_reasoning)
        if route in ("messages", "none"):
            start = self._started(start.then(lambda messages: self._place(messages, template)), template)
        else:
            start = start.then(lambda messages: keep(messages, "left where it stands"))
        if route == "none" or start.error:
            return start
        if route == "chat" and request.dialect == "openai-chat" and request.tools == ():
            start = start.refused(400, "tools must not be an empty array")
        lists = takes_lists(template, start.request, self.form)
        done = through_renderer(start, template, lists)
        if request.dialect == "openai-responses":
            return with_settings(done, effort=body_effort(request), partial=continues(request))
        generation = request.fields.get("add_generation_prompt") is not False
        if request.partial and generation:
            done = done.refused(
                400, "a message cannot be continued after a generation prompt, which is the default"
            )
        effort = self._effort(request, template, lists)
        return with_settings(done, effort=effort, add_generation_prompt=generation, partial=request.partial)

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

    def _started(self, start: Prepared, template: ChatTemplate) -> Prepared:
        """Return a prepared request with the error of a server that does not start with this template."""
        if self.version in (MOVES_ALL, MOVES_NONE):
            return start
        answer = self.detector(template)
        return start if answer.starts else replace(start, error=RenderError("ServerError", answer.why))

    def _effort(self, request: Request, template: ChatTemplate, lists: bool) -> Any:
        thinking = request.fields.get("thinking")
        if not (isinstance(thinking, Mapping) and thinking.get("type") == "disabled"):
            return body_effort(request)
        if request.dialect != "anthropic-messages":
            return body_effort(request)
        return _disabled_effort(template, lists) if self.disabled == "auto" else self.disabled


def _disabled_effort(template: ChatTemplate, lists: bool) -> str:
    """Return the effort for disabled thinking: none, or low where the template refuses or ignores none."""
    content: Any = [{"type": "text", "text": "Hi"}] if lists else "Hi"

    def prompt(effort: str) -> str | None:
        kwargs = {"reasoning_effort": effort, "enable_thinking": effort != "none"}
        try:
            return template.render([{"role": "user", "content": content}], kwargs=kwargs)
        except RenderError:
            return None

    none = prompt("none")
    return "low" if none is None or any(prompt(effort) == none for effort in EFFORTS[1:]) else "none"


def _as_chat(request: Request) -> Prepared:
    if request.dialect == "openai-responses":
        return convert_responses(request)
    if request.dialect == "openai-chat":
        return Prepared(request.replace(tools=chat_tools(request.tools)))
    tools = _anthropic_tools(request)
    done = convert_anthropic(joined_blocks(_without_billing(request), BlockJoins()), _ANTHROPIC)
    return replace(done, request=done.request.replace(tools=tools))


def _anthropic_tools(request: Request) -> tuple[Mapping[str, Any], ...] | None:
    """Return the tools at the end of the conversation, whose system turns may add and remove some."""
    changes = [
        block
        for message in request.messages
        if isinstance(message.content, list)
        for block in message.content
        if isinstance(block, Mapping)
        and block.get("type") in ("tool_addition", "tool_removal")
        and isinstance(block.get("tool"), Mapping)
    ]
    if request.tools is None and not changes:
        return None
    tools = {tool.get("name"): tool for tool in request.tools or ()}
    removed: set[Any] = set()
    for block in changes:
        change = block["tool"]
        defined = change.get("definition")
        name = defined.get("name") if isinstance(defined, Mapping) else change.get("name")
        if isinstance(defined, Mapping):
            tools[name] = defined
        elif block["type"] == "tool_addition" and name in tools:
            tools[name] = {**tools[name], "defer_loading": None}
        (removed.add if block["type"] == "tool_removal" else removed.discard)(name)
    return tuple(_anthropic_tool(tool) for name, tool in tools.items() if name not in removed)


def _anthropic_tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    return function_tool(tool, object_schema(tool))


def _with_reasoning(messages: Messages) -> Rewrite:
    """Give reasoning both of its names; a null `reasoning` takes the value of `reasoning_content`."""
    why = "its reasoning stands under reasoning and reasoning_content"
    return each_changed(messages, _both_names, "converted", why)


def _both_names(message: Message) -> Message:
    data = message.data
    reasoning = data.get("reasoning")
    reasoning = data.get("reasoning_content") if reasoning is None else reasoning
    same = data.get("reasoning") == data.get("reasoning_content") == reasoning
    if not has_role(message, "assistant") or reasoning is None or same:
        return message
    return message.replace(reasoning=reasoning, reasoning_content=reasoning)


def _without_reasoning_content(messages: Messages) -> Rewrite:
    """Read reasoning from `reasoning` alone, as older versions do."""
    why = "the server reads reasoning, not reasoning_content"
    return each_changed(messages, _reasoning_alone, "converted", why)


def _reasoning_alone(message: Message) -> Message:
    reasoning = message.data.get("reasoning")
    if message.data.get("reasoning_content") == reasoning:
        return message
    return message.replace(reasoning_content=reasoning)


def _without_billing(request: Request) -> Request:
    """Return an Anthropic request without the blocks that carry Claude Code's billing header."""
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
    """Return the texts that the server takes: those neither empty nor Claude Code's billing header.

    A top-level system text that is no list of blocks is taken with it; the renderer cuts the line.
    """
    top = message.index == TOP_LEVEL
    return [text for text in part_texts(message) if text and (top or not _is_header(text))]


def _is_header(text: Text) -> bool:
    return text.text.startswith(BILLING_HEADER)


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


KINDS = (
    PolicyKind(
        "vllm",
        "vLLM: /v1/messages in place where the template renders that, else one system block; chat as it is",
        lambda name, options: Vllm(
            name, options.get("route"), options["version"], options["content"], options["disabled-thinking"]
        ),
        source="vllm 0.33.0; vllm-project/vllm#44283, #44602, #46025",
        date="2026-12-01",
        evidence={"messages": "run", "chat": "run", "responses": "run", "older versions": "reported"},
        cache="vllm:16",
        drift="Where the template raises, every new system turn on /v1/messages lengthens the first "
        "block, so that all behind it is computed again; else earlier text stays.",
        options={
            "route": PolicyOption(("chat", "messages", "responses", "none"), otherwise=ROUTES.otherwise),
            "version": PolicyOption((MOVES_ALL, MOVES_NONE, TESTS, NEWEST), NEWEST),
            "content": PolicyOption(("auto", "string", "openai"), "auto"),
            "disabled-thinking": PolicyOption(("auto", *EFFORTS), "auto"),
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
        reuse_reports=ReuseReports("--enable-prompt-tokens-details"),
        suite="engines",
    ),
)
