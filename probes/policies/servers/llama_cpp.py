"""llama.cpp: nothing is done for later system turns; its server renders with its own engine and defaults.

`developer` becomes `system` unless the template has `<|channel|>`, for which reasoning is copied to
`thinking` (and takes the place of a content beside tool calls); where the template does not take a system
role, the first system turn's text goes before the next turn's. Contents become what the template takes (texts
or lists of parts, never null), and arguments of tool calls dicts where it takes those. Four variables for the
reasoning of earlier turns are set, `enable_thinking` always is. An error of the template is the answer: HTTP
500 (ggml-org/llama.cpp#27367). Chat, messages and responses all end here (`common/chat.cpp`,
`common/jinja/caps.cpp` and `tools/server/server-chat.cpp` of ggml-org/llama.cpp). See docs/servers.md,
section 9.

What the template takes the server finds out by running it and watching which values it reads; here it is told
from what comes out (`Capabilities`), which is the same for all but templates that read a text and do not
write it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from ...conversation import Message, Request
from ...errors import RenderError
from ...templates.template import ChatTemplate
from ..api.anthropic_route import AnthropicRules
from ..api.responses_route import ResponsesRules
from ..api.routes import BlockJoins, as_chat, body_effort, with_kwargs
from ..base import Action, Messages, Prepared, Rewrite
from ..kind import ON, PassesOn, PolicyKind, PolicyOption
from ..rewrite.part_texts import as_system, joined
from ..rewrite.reasoning import template_text
from ..rewrite.system_turns import each_changed, has_role, indices, keep
from ..rewrite.texts import Text, content_text, flat_text, join, part_text, rebuilt
from ..rewrite.tool_arguments import parse_arguments

CHANNEL = "<|channel|>"
BETWEEN = "\n"
MEDIA_MARKER = "<__media__>"
_MEDIA = ("image_url", "input_audio", "input_video")
_MARKER = "zqllamazq"
_QUOTED_KEY = re.compile(r"""['"]text['"]\s*:""")
_CALL_ID = "llamacall"
_TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look something up.",
        "parameters": {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
    },
}
_BILLING = re.compile(r"^(x-anthropic-billing-header:.*?cch=).{5}(?=;)", re.DOTALL)


def steady_billing_header(text: str) -> str:
    """Return a system text whose billing header, if it begins with one, is the same for every request."""
    return _BILLING.sub(r"\1fffff", text, count=1)


_ANTHROPIC = AnthropicRules(reasoning="field", images=True, results_last=True, dropped_system=())
_JOINS = BlockJoins(between_results="", clean_system=steady_billing_header)
_RESPONSES = ResponsesRules(images=True)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a template takes.

    Attributes:
        system_role: the text of a first system turn comes out.
        text_content: a content that is a text comes out.
        typed_content: only a content that is a list of parts comes out.
        object_arguments: arguments of a tool call that are a dict come out.
    """

    system_role: bool
    text_content: bool
    typed_content: bool
    object_arguments: bool


def capabilities(template: ChatTemplate) -> Capabilities:
    """Find out what a template takes by rendering four short conversations."""
    parts = [{"type": "text", "text": _MARKER}]
    text = _MARKER in _rendered(template, [{"role": "user", "content": _MARKER}])
    typed = _rendered(template, [{"role": "user", "content": parts}])

    def turn(role: str, words: str, **keys: Any) -> dict[str, Any]:
        return {"role": role, "content": words if text else [{"type": "text", "text": words}], **keys}

    call = {"name": "look_up", "arguments": {"key": _MARKER}}
    calls = [{"id": _CALL_ID, "type": "function", "function": call}]
    loop = [
        turn("user", "u"),
        turn("assistant", "", tool_calls=calls),
        turn("tool", "r", tool_call_id=_CALL_ID),
        turn("assistant", "a"),
        turn("user", "u"),
    ]
    return Capabilities(
        system_role=_MARKER in _rendered(template, [turn("system", _MARKER), turn("user", "u")]),
        text_content=text,
        typed_content=not text and _MARKER in typed and not _QUOTED_KEY.search(typed),
        object_arguments=_MARKER in _rendered(template, loop, (_TOOL,)),
    )


def _rendered(
    template: ChatTemplate, messages: list[dict[str, Any]], tools: tuple[Mapping[str, Any], ...] | None = None
) -> str:
    try:
        return template.render(messages, tools=tools)
    except RenderError:
        return ""


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """llama.cpp's preparation of a request.

    Attributes:
        name: the policy as the person named it.
        preserves_reasoning: the server's flag, on by default; `--no-reasoning-preserve` turns it off.
        known: the capabilities found so far, by template.
    """

    name: str
    preserves_reasoning: bool = True
    known: dict[Hashable, Capabilities] = field(default_factory=dict, repr=False, compare=False)

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return the request as this server's engine gets it."""
        text = template_text(template)
        can = self._capabilities(template, text)
        start = as_chat(request, _ANTHROPIC, _RESPONSES, _JOINS)
        start = start.then(lambda messages: _fit_contents(messages, can))
        if CHANNEL not in text:
            start = start.then(as_system)
        if can.system_role:
            start = start.then(lambda messages: keep(messages, "passed on to the template"))
        else:
            start = _without_system_role(start)
        if can.object_arguments:
            start = start.then(parse_arguments)
        if CHANNEL in text:
            start = start.then(_with_thinking)
        return self._with_variables(replace(start, profile="raw"), request, template)

    def _capabilities(self, template: ChatTemplate, text: str) -> Capabilities:
        key = (id(template), text)
        if key not in self.known:
            self.known[key] = capabilities(template)
        return self.known[key]

    def _with_variables(self, prepared: Prepared, request: Request, template: ChatTemplate) -> Prepared:
        effort = body_effort(request)
        if effort == "none":
            prepared = with_kwargs(prepared, {"enable_thinking": False}, "the request's effort is none")
        elif effort is not None:
            prepared = with_kwargs(prepared, {"reasoning_effort": effort})
        effort = prepared.request.kwargs.get("reasoning_effort")
        if isinstance(effort, str) and effort:
            prepared = with_kwargs(prepared, {"reasoning_strength": effort}, "the same")
        keeps = prepared.request.kwargs.get("preserve_reasoning", self.preserves_reasoning)
        if isinstance(keeps, bool):
            flag = "--reasoning-preserve" if keeps else "--no-reasoning-preserve"
            prepared = with_kwargs(prepared, reasoning_variables(keeps), f"what {flag} stands for")
            prepared = with_kwargs(prepared, {"preserve_reasoning": keeps}, "the flag itself")
        now = request.now or getattr(template, "now", None) or datetime.now()
        dates = {"datetime": now.strftime("%b %d %Y"), "date_string": now.strftime("%d %b %Y")}
        prepared = with_kwargs(prepared, {"enable_thinking": True}, "always defined")
        return with_kwargs(prepared, dates, "today, always defined", values=False)


def reasoning_variables(keeps: bool) -> dict[str, bool]:
    """Return the four variables that llama.cpp sets for its flag `--reasoning-preserve`."""
    return {
        "preserve_thinking": keeps,
        "clear_thinking": not keeps,
        "truncate_history_thinking": not keeps,
        "drop_thinking": not keeps,
    }


def _fit_contents(messages: Messages, can: Capabilities) -> Rewrite:
    """Give contents the form that the template takes; one that is null or missing becomes an empty text."""
    why = "its content takes the form that the template accepts"
    return each_changed(messages, lambda message: _fitted(message, can), "converted", why)


def _fitted(message: Message, can: Capabilities) -> Message:
    content = message.content
    if content is None:
        return message.replace(content="")
    if isinstance(content, list) and can.text_content and not can.typed_content:
        text = _flattened(message, content)
        return rebuilt(message, text.text, text.pieces())
    if isinstance(content, str) and can.typed_content and not can.text_content:
        pieces = tuple(dataclasses.replace(piece, part=0) for piece in message.pieces)
        return message.replace(content=[{"type": "text", "text": content}], pieces=pieces)
    return message


def _flattened(message: Message, parts: list[Any]) -> Text:
    """Return a list of parts as one text: lines of text, and the server's marker for each image or sound."""
    texts: list[Text] = []
    after_marker = False
    for number, part in enumerate(parts):
        text = part_text(part)
        if text is None and not (isinstance(part, dict) and part.get("type") in _MEDIA):
            continue
        piece = content_text(message, number, MEDIA_MARKER if text is None else text)
        new_line = text is not None and not after_marker and any(texts)
        texts.append(piece.wrapped(BETWEEN, "") if new_line else piece)
        after_marker = text is None
    return joined(texts, "") if texts else content_text(message, None, "")


def _with_thinking(messages: Messages) -> Rewrite:
    """Copy reasoning to the field that gpt-oss' template writes as channel `analysis`.

    A message that calls tools loses its content then: the template takes either.
    """
    why = "its reasoning goes into the field `thinking`, in place of a content where it calls tools"
    return each_changed(messages, _thinking, "converted", why)


def _thinking(message: Message) -> Message:
    reasoning = message.data.get("reasoning_content")
    if not isinstance(reasoning, str):
        return message
    if not isinstance(message.data.get("tool_calls"), list) or not message.data["tool_calls"]:
        return message.replace(thinking=reasoning)
    data = {key: value for key, value in message.data.items() if key != "content"}
    return dataclasses.replace(message, data={**data, "thinking": reasoning}, pieces=())


def _without_system_role(start: Prepared) -> Prepared:
    """Put a first system turn's text before the next turn's.

    The server takes both contents for texts and fails on any other.
    """
    first, *others = start.request.messages or (None,)
    if first is None or not has_role(first, "system"):
        return start.then(lambda messages: keep(messages, "passed on to the template"))
    if not others:
        why = "the template takes no system role, and there is no turn to carry the text"
        return start.then(lambda messages: Rewrite((), (Action("dropped", indices((first,)), why),)))
    second = others[0]
    if not isinstance(first.content, str) or not isinstance(second.content, str):
        error = RenderError("type_error", "type must be string, but is array")
        return replace(start.then(lambda messages: keep(messages, "the server fails on it")), error=error)
    text = join((flat_text(first), flat_text(second)), BETWEEN)
    folded = rebuilt(second, text.text, text.pieces())
    why = f"the template takes no system role: its text goes before that of message {second.index}"
    later = keep(tuple(others), "passed on to the template").actions
    actions = (Action("merged", indices((first, second)), why), *later)
    return start.then(lambda messages: Rewrite((folded, *others[1:]), actions))


KINDS = (
    PolicyKind(
        "llama-cpp",
        "llama.cpp: passed on to the template, with variables that keep the reasoning of earlier turns",
        lambda name, options: LlamaCpp(name, options["reasoning_preserve"] == "on"),
        source="ggml-org/llama.cpp common/chat.cpp, common/arg.cpp, common/jinja/caps.cpp at b10775",
        date="2026-09-03",
        evidence={"messages": "read", "variables for reasoning": "run"},
        cache="llama.cpp",
        drift="The rules change nothing earlier, except that the date variables change at midnight; the rest "
        "is what the template makes of later system turns.",
        options={"reasoning_preserve": ON, "slots": PolicyOption(("1", "2", "4", "8"), "4")},
        cache_options=("slots",),
        aliases=("llama-server",),
        # The flag: ggml-org/llama.cpp, common/arg.cpp.
        kwargs_setting="llama-server … --chat-template-kwargs '{}'",
        checks=(PassesOn("llama.cpp", 5, "HTTP 500"),),
        # `--cache-reuse N`: ggml-org/llama.cpp, tools/server/README.md.
        shifts_states=True,
        suite="engines",
    ),
)
