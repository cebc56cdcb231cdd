"""Rapid-MLX: the hoist on two routes, with two ways around it, and a retry after an error on the chat route.

`/v1/messages` leaves Claude Code's token counter out and moves the other system texts into the first message,
or with `--relocate-mid-conversation-system` (`relocate=on`) into the user turns behind them where every one
has such a turn. `/v1/responses` always hoists. Chat completions renders what it got and hoists only after the
template said that a system message must come first. A Harmony template (gpt-oss) gets one leading instruction
on every route, because it leaves out later ones in silence. `route=none` is the messages route's system rules
alone (docs/servers.md, section 4; raullenchai/Rapid-MLX#1512, #1543, #4036, release 0.16.10).

The engine for text models makes one text of each content list, and keeps of a message only role, content,
tool calls and their ids. Without a tool parser that can do otherwise (`tools=native`), calls and results
become text. The engine for models that see (`engine=vlm`) hands on lists that hold more than text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...conversation import TOP_LEVEL, Message, Request
from ...errors import RenderError
from ...templates.template import ChatTemplate
from ..api.anthropic_route import AnthropicRules
from ..api.chat_route import template_tools
from ..api.responses_route import ResponsesRules
from ..api.routes import BlockJoins, as_chat, body_effort, route_of, with_kwargs
from ..base import Action, Messages, Policy, Prepared, Rewrite
from ..kind import OFF, ROUTES, PolicyKind, PolicyOption, ReuseReports
from ..rewrite.part_texts import (
    as_one_text,
    as_system,
    is_text_part,
    merge_into_first,
    part_texts,
    system_turn,
    whole_text,
)
from ..rewrite.preparation import extract_text, never_continued, thinks_by_default
from ..rewrite.reasoning import template_text, thinking_type
from ..rewrite.system_turns import (
    Run,
    done,
    each_changed,
    has_role,
    indices,
    is_system,
    keep_each,
    neighbours,
    system_runs,
)
from ..rewrite.texts import Text, content_text, cover, join, rebuilt
from ..rewrite.tool_arguments import as_value, fill_arguments, parse_arguments
from .rapid_retries import retries

BETWEEN_TEXTS = "\n\n"
REMINDER = ("<system-reminder>\n", "\n</system-reminder>")
COUNTER = re.compile(r"<total_tokens>\s*\d[\d,]*\s+tokens?\s+left\s*</total_tokens>")
BILLING_HEADER = re.compile(r"x-anthropic-billing-header:[^\n]*\n?")
HARMONY_MARKERS = ("<|start|>", "<|channel|>", "<|message|>")
REASONING_KEYS = frozenset({"reasoning_content", "reasoning", "thinking"})
#: The reasoning efforts that the chat route takes.
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
#: Arguments of the renderer that the server never takes from a request.
RESERVED = frozenset({"tokenize", "add_generation_prompt", "tools"})
ANTHROPIC = AnthropicRules(
    reasoning="dropped", images=True, results_last=True, dropped_system=(), needs_result=True
)
RESPONSES = ResponsesRules(
    reasoning=False, join_calls=False, images=True, between_parts="", list_outputs="json", raw_arguments=True
)
JOINS = BlockJoins("\n")


@dataclass(frozen=True, slots=True)
class RapidMlx:
    """Rapid-MLX's preparation of messages.

    Attributes:
        name: the policy as the person named it.
        route: the server's route; None for that of the request's dialect.
        relocate: the server runs with `--relocate-mid-conversation-system`.
        drops_counter: the messages route leaves token counters out, as it does since issue 4036.
        harmony: whether the template is Harmony's; None to tell by its text, as the server does.
        text_engine: the engine for text models, which makes texts of all contents, is what serves.
        native_tools: whether the tool parser keeps the structure of calls and results.
        reasoning_parser: whether the server has a parser for the model's reasoning, and so does not let it
            think where neither tools nor anything else ask for it.
    """

    name: str
    route: str | None = None
    relocate: bool = False
    drops_counter: bool = True
    harmony: bool | None = None
    text_engine: bool = True
    native_tools: bool = False
    reasoning_parser: bool = False

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return the request as the server's template gets it."""
        route = route_of(self.route, request)
        counted = Rewrite(request.messages)
        if self.drops_counter and route in ("none", "messages"):
            counted = drop_counters(request.messages)
        if route == "none":
            return Prepared(request).then(lambda messages: counted.then(self._lead))
        given = tuple(_joined_instruction(message) for message in counted.messages)
        cleaned = request.replace(messages=given, system=_system_text(request))
        responses = replace(RESPONSES, between_parts="\n") if self.text_engine else RESPONSES
        chat = as_chat(cleaned, ANTHROPIC, responses, JOINS)
        tools = template_tools(chat.request.tools, describe=False)
        chat = replace(
            chat, request=chat.request.replace(tools=tools), actions=chat.actions + counted.actions
        ).then(as_system)
        if route == "responses":
            chat = chat.then(fill_arguments)
        if route == "messages":
            chat = chat.then(self._lead)
        else:
            chat = chat.then(hoist if route == "responses" else keep_each)
        chat = chat.then(drop_reasoning).then(self._extracted if self.text_engine else flatten)
        chat = chat.then(lambda given: parse_arguments(given, as_value))
        if self._is_harmony(template):
            try:
                chat = chat.then(collapse_instructions)
            except ValueError as refused:
                chat = replace(chat, error=RenderError("ValueError", str(refused)))
        effort = body_effort(request)
        if route == "chat" and effort is not None and effort not in EFFORTS:
            chat = replace(chat, error=RenderError("HTTP 400", f"no reasoning effort is {effort!r}"))
        chat = self._with_thinking(never_continued(chat), request, template, route)
        return replace(chat, retries=retries(chat.request))

    def _extracted(self, messages: Messages) -> Rewrite:
        return extract_text(messages, native=self.native_tools)

    def _lead(self, messages: Messages) -> Rewrite:
        return relocate_or_hoist(messages) if self.relocate else hoist(messages)

    def _with_thinking(
        self, start: Prepared, request: Request, template: ChatTemplate, route: str
    ) -> Prepared:
        """Set `enable_thinking` as the server does, and for Harmony the lowest effort where it is off."""
        own = {key: value for key, value in start.request.kwargs.items() if key not in RESERVED}
        thinks = self._thinks(own.pop("enable_thinking", None), start.request, request, route)
        added: dict[str, Any] = {"enable_thinking": thinks}
        text = template_text(template)
        names_effort = "reasoning_effort" in text and "enable_thinking" not in text
        if not thinks and names_effort and self._is_harmony(template):
            added["reasoning_effort"] = "low"
        bare = replace(start, request=start.request.replace(kwargs=own))
        return with_kwargs(bare, added, "the server always sets it")

    def _thinks(self, given: Any, chat: Request, request: Request, route: str) -> bool:
        """Tell whether the model shall think, which the first of several fields and rules decides."""
        effort = body_effort(request)
        if route == "messages":
            asked = True if effort is not None else thinking_type(request.fields)
            given = given if asked is None else asked
        if isinstance(given, str) and given.strip().lower() in ("true", "false"):
            given = given.strip().lower() == "true"
        asked = given if isinstance(given, bool) else request.fields.get("enable_thinking")
        if isinstance(asked, bool):
            return asked
        if effort == "none":
            return False
        wanted = effort is not None or request.fields.get("reasoning_max_tokens") is not None
        offered = chat.tools and request.fields.get("tool_choice") != "none"
        if not wanted and (offered or (self.reasoning_parser and not chat.tools)):
            return False
        return thinks_by_default(request)

    def _is_harmony(self, template: ChatTemplate) -> bool:
        if self.harmony is not None:
            return self.harmony
        text = template_text(template)
        return all(marker in text for marker in HARMONY_MARKERS)


def drop_counters(messages: Messages) -> Rewrite:
    """Leave out system messages that are only a token counter, last or right before an assistant turn."""
    pairs = zip(messages, (*messages[1:], None), strict=False)
    counters = [message for message, after in pairs if _is_counter(message, after)]
    gone = {id(message) for message in counters}
    kept = tuple(message for message in messages if id(message) not in gone)
    return Rewrite(kept, done("dropped", counters, "the server leaves out the token counter"))


def hoist(messages: Messages) -> Rewrite:
    """Move all system texts into the first message; without any text the system messages vanish."""
    return merge_into_first(messages, whole_text, BETWEEN_TEXTS, "moved into the first system message")


def relocate_or_hoist(messages: Messages) -> Rewrite:
    """Put each later system run into the user turn behind it; hoist all where one has no such turn."""
    later = [run for run in system_runs(messages) if not run.leads]
    stuck = [run for run in later if not has_role(neighbours(messages, run)[1], "user")]
    if not stuck:
        return Rewrite(messages).then(_relocate).then(hoist)
    refused = tuple(Action("refused", run.indices, "no user turn behind it") for run in stuck)
    why = "moved into the first system message: the server relocates all later system turns or none"
    return Rewrite(messages, refused).then(
        lambda given: merge_into_first(given, whole_text, BETWEEN_TEXTS, why)
    )


def flatten(messages: Messages) -> Rewrite:
    """Make one text of each content list that is text only, its parts joined by nothing."""
    return each_changed(messages, _flat, "converted", "its list of texts becomes one text")


def drop_reasoning(messages: Messages) -> Rewrite:
    """Leave the reasoning of earlier turns out, which the server's request has no field for."""
    why = "the server does not take the reasoning of earlier turns"
    return each_changed(messages, _without_reasoning, "dropped", why)


def collapse_instructions(messages: Messages) -> Rewrite:
    """Join all system messages into the first for Harmony, whose template takes an instruction only there.

    Raises:
        ValueError: a system message has other keys than role and content, or a content that is no text, which
            the server refuses.
    """
    if not any(is_system(message) for message in messages[1:]):
        return Rewrite(messages)
    systems = [message for message in messages if is_system(message)]
    if any(set(message.data) - {"role", "content"} for message in systems):
        raise ValueError("Harmony cannot keep further keys of a system message")
    if not all(isinstance(message.content, str) for message in systems):
        raise ValueError("Harmony takes only text in a system message")
    texts = [(message, content_text(message, None, message.content)) for message in systems]
    others = tuple(message for message in messages if not is_system(message))
    why = "joined into the first message, because Harmony's template leaves out later instructions"
    action = Action("hoisted", indices(systems), why)
    return Rewrite((system_turn(texts, BETWEEN_TEXTS), *others), (action,))


def _relocate(messages: Messages) -> Rewrite:
    output: list[Message] = []
    actions: list[Action] = []
    position = 0
    for run in system_runs(messages):
        if run.leads:
            continue
        output += messages[position : run.start]
        host = messages[run.stop]
        position = run.stop + 1
        reminders = _reminders(run)
        output.append(_with_reminders(host, reminders) if reminders else host)
        empty = [message for message in run.messages if not whole_text(message, False)]
        moved = [message for message in run.messages if whole_text(message, False)]
        why = f"put at the beginning of the user turn after it (message {host.index}), as its text"
        actions += (*done("dropped", empty, "no text"), *done("relocated", moved, why))
    output += messages[position:]
    return Rewrite(tuple(output), tuple(actions))


def _reminders(run: Run) -> Text | None:
    texts = [text.wrapped(*REMINDER) for message in run.messages for text in whole_text(message, False)]
    return join(texts, "\n") if texts else None


def _with_reminders(host: Message, reminders: Text) -> Message:
    """Return a user turn with the reminders before its text, or as one more part of its list."""
    if isinstance(host.content, list):
        own = (replace(piece, part=(piece.part or 0) + 1) for piece in cover(host))
        return rebuilt(
            host, [{"type": "text", "text": reminders.text}, *host.content], (*reminders.pieces(0), *own)
        )
    body = content_text(host, None, host.content if isinstance(host.content, str) else "")
    text = join((reminders, body), BETWEEN_TEXTS) if body else reminders
    return rebuilt(host, text.text, text.pieces())


def _is_counter(message: Message, following: Message | None) -> bool:
    if not has_role(message, "system") or not (following is None or has_role(following, "assistant")):
        return False
    content: Any = message.content
    if isinstance(content, list):
        block = content[0] if len(content) == 1 else None
        if not isinstance(block, Mapping) or set(block) - {"cache_control"} != {"type", "text"}:
            return False
        content = block["text"] if block["type"] == "text" else None
    return isinstance(content, str) and COUNTER.fullmatch(content.strip()) is not None


def _system_text(request: Request) -> Any:
    """Return an Anthropic top-level system text as one, without billing headers; another's as it is."""
    if request.dialect != "anthropic-messages":
        return request.system
    system = Message({"role": "system", "content": request.system}, TOP_LEVEL)
    return BILLING_HEADER.sub("", join(part_texts(system), "\n").text)


def _joined_instruction(item: Message) -> Message:
    """Return a Responses instruction with its parts joined by newlines, unlike those of other items."""
    parts = item.content
    if item.data.get("type") != "message" or not is_system(item) or not isinstance(parts, list):
        return item
    texts = (str(part.get("text") or "") for part in parts if isinstance(part, Mapping))
    return item.replace(content="\n".join(texts))


def _without_reasoning(message: Message) -> Message:
    if message.data.keys().isdisjoint(REASONING_KEYS):
        return message
    data = {key: value for key, value in message.data.items() if key not in REASONING_KEYS}
    return Message(data, message.index, message.pieces)


def _flat(message: Message) -> Message:
    content = message.content
    texts = isinstance(content, list) and content and all(map(is_text_part, content))
    return as_one_text(message, "") if texts else message


def _make(name: str, options: Mapping[str, str]) -> Policy:
    harmony = {"on": True, "off": False}.get(options.get("harmony", ""))
    return RapidMlx(
        name,
        options.get("route"),
        relocate=options["relocate"] == "on",
        drops_counter=options["counter"] == "drop",
        harmony=harmony,
        text_engine=options["engine"] == "text",
        native_tools=options["tools"] == "native",
        reasoning_parser=options["reasoning_parser"] == "on",
    )


KINDS = (
    PolicyKind(
        "rapid-mlx",
        "Rapid-MLX: the hoist on /v1/messages and /v1/responses; on chat only after the template raised",
        _make,
        source="raullenchai/Rapid-MLX 0.16.10",
        date="2026-10",
        evidence={"system turns": "run", "conversions of the routes": "run"},
        cache="rapid-mlx",
        drift="each later system turn lengthens the first system message; with relocate=on the request that "
        "ends in one hoists all of them, and the next, where a user turn follows, relocates all",
        options={
            "route": ROUTES,
            "relocate": OFF,
            "counter": PolicyOption(("drop", "keep"), "drop"),
            "harmony": PolicyOption(("on", "off"), otherwise="whether the template is one of Harmony"),
            "engine": PolicyOption(("text", "vlm"), "text"),
            "tools": PolicyOption(("text", "native"), "text"),
            "reasoning_parser": OFF,
        },
        reuse_reports=ReuseReports(log=True, repeat_is_whole=True),
        suite="local",
    ),
)
