"""oMLX's probe: does the chat template leave a system turn where it stands?

The server renders a tiny conversation of marker texts and looks where the markers come out. What it asks and
how it remembers the answer are reproduced exactly, weaknesses included: there is no leading system message in
the probe, and the tool-call id is one that a template may refuse (docs/servers.md, section 1;
jundot/omlx#2753, omlx/api/utils.py). The leading system message that jundot/omlx#1991 proposes can be asked
for; its text is this package's own.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from ...conversation import Request
from ...errors import RenderError, RenderLimit
from ...templates.template import ChatTemplate
from ..kind import Answer
from ..rewrite.system_turns import Placement

LEADING_MARKER = "__OMLX_MID_SYSTEM_PROBE_LEADING__"
USER_MARKER = "__OMLX_MID_SYSTEM_PROBE_USER__"
TOOL_MARKER = "__OMLX_MID_SYSTEM_PROBE_TOOL__"
SYSTEM_MARKER = "__OMLX_MID_SYSTEM_PROBE_SYSTEM__"
ASSISTANT_MARKER = "__OMLX_MID_SYSTEM_PROBE_ASSISTANT__"
CALL_ID = "omlx_mid_system_probe_call"
#: A call id that strict templates accept.
_STRICT_CALL_ID = "omlxcall1"
TOOL_NAME = "omlx_probe_tool"
PROBE_TOOL = {
    "type": "function",
    "function": {
        "name": TOOL_NAME,
        "description": "oMLX chat-template probe tool.",
        "parameters": {"type": "object", "properties": {}},
    },
}


@dataclass(frozen=True, slots=True)
class Probe:
    """The probe, with the server's memory of its answers, which has no limit.

    Attributes:
        answers: what was concluded so far, by the server's own key.
    """

    answers: dict[Hashable, Answer] = field(default_factory=dict, repr=False, compare=False)

    def __call__(
        self, template: ChatTemplate, place: Placement, request: Request, *, leading: bool = False
    ) -> Answer:
        """Return whether the server leaves system turns of a placement in place.

        Args:
            template: the template to ask.
            place: the placement.
            request: the request whose tools, chat-template kwargs, clock and partial flag count.
            leading: whether the conversation of markers begins with a system message.
        """
        if getattr(template, "supports_mid_system_messages", None) is False:
            return Answer(False, "the template object declares that it does not support later system turns")
        key = (
            id(template),
            _source(template),
            bool(request.tools),
            frozen(request.kwargs),
            place.preceding,
            place.kind,
            request.partial,
            leading,
        )
        answer = self.answers.get(key)
        if answer is None:
            messages = probe_messages(place, leading=leading)
            answer = self.answers[key] = judge_probe(template, place, request, messages)
        return answer


def answers(
    template: ChatTemplate, request: Request, places: Sequence[Placement], *, leading: bool = False
) -> dict[Placement, Answer]:
    """Return what the server concludes for each of the placements, for requests like the one given.

    With `leading` for requests that begin with a system message (jundot/omlx#1991).
    """
    probe = Probe()
    tools = [PROBE_TOOL] if request.tools else None
    arguments = {"tools": tools, "kwargs": dict(request.kwargs), "now": request.now}
    # What the probe is going to ask for is rendered at once.
    template.render_ahead(
        {"messages": probe_messages(place, leading=leading), **arguments} for place in places
    )
    return {place: probe(template, place, request, leading=leading) for place in places}


def rejected_ids(
    template: ChatTemplate, request: Request, given: Mapping[Placement, Answer], *, leading: bool = False
) -> tuple[str, ...]:
    """Return the probe's call id where it fails with that one and passes with nine letters and digits."""
    if template.supports_mid_system_messages is False:
        return ()
    for place, answer in given.items():
        if place.preceding == "tool" and not answer.in_place:
            messages = probe_messages(place, call_id=_STRICT_CALL_ID, leading=leading)
            if judge_probe(template, place, request, messages).in_place:
                return (CALL_ID,)
    return ()


def _source(template: ChatTemplate) -> str | None:
    try:
        return template.text
    except RenderError:  # named templates, none of them the default
        return None


def frozen(value: Any) -> Hashable:
    """Return a hashable stand-in for a chat-template kwarg; as at the server, `1` and `true` are the same."""
    if isinstance(value, Mapping):
        items = ((str(key), frozen(item)) for key, item in value.items())
        return tuple(sorted(items, key=lambda item: item[0]))
    if isinstance(value, list | tuple):
        return tuple(frozen(item) for item in value)
    if isinstance(value, set):
        return tuple(sorted((frozen(item) for item in value), key=repr))
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return cast(Hashable, value)


def probe_messages(
    place: Placement, *, call_id: str = CALL_ID, leading: bool = False
) -> tuple[dict[str, Any], ...]:
    """Return the conversation of markers that the server renders for a placement.

    Args:
        place: the placement.
        call_id: id of the tool call after which a `tool` turn stands; the server's own by default.
        leading: whether a system message comes first.
    """
    messages: list[dict[str, Any]] = [{"role": "system", "content": LEADING_MARKER}] if leading else []
    messages.append({"role": "user", "content": USER_MARKER})
    if place.preceding == "tool":
        call = {"id": call_id, "type": "function", "function": {"name": TOOL_NAME, "arguments": {}}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call_id, "content": TOOL_MARKER})
    messages.append({"role": "system", "content": SYSTEM_MARKER})
    if place.kind == "between":
        messages.append({"role": "assistant", "content": ASSISTANT_MARKER})
    return tuple(messages)


def judge_probe(
    template: ChatTemplate, place: Placement, request: Request, messages: tuple[dict[str, Any], ...]
) -> Answer:
    """Render a conversation of markers as the server renders its own, and judge it as the server does.

    Args:
        template: the template to ask.
        place: the placement that the conversation is about.
        request: the request whose tools, chat-template kwargs, clock and partial flag count.
        messages: what `probe_messages` returns, or a variant of it.
    """
    arguments: dict[str, Any] = {"add_generation_prompt": not request.partial}
    if request.partial:
        arguments["continue_final_message"] = True
    if request.tools:
        arguments["tools"] = [PROBE_TOOL]
    arguments |= request.kwargs
    if arguments.pop("tokenize", False):
        return Answer(False, "the chat-template kwargs ask for token ids instead of text")
    try:
        try:
            text = _render(template, messages, arguments, request.now)
        except RenderError as error:
            if error.kind != "TypeError":
                raise
            dropped = {*request.kwargs, "tools", "enable_thinking"}
            fewer = {key: value for key, value in arguments.items() if key not in dropped}
            text = _render(template, messages, fewer, request.now)
    except RenderError as error:
        return Answer(False, f"the template {error.clause}", not isinstance(error, RenderLimit))
    return _judge(text, place)


def _render(
    template: ChatTemplate,
    messages: tuple[dict[str, Any], ...],
    arguments: Mapping[str, Any],
    now: datetime | None,
) -> str:
    """Render with arguments as for `apply_chat_template`, where an absent generation prompt is none."""
    own = ("tools", "add_generation_prompt", "continue_final_message")
    return template.render(
        messages,
        tools=arguments.get("tools"),
        kwargs={key: value for key, value in arguments.items() if key not in own},
        add_generation_prompt=bool(arguments.get("add_generation_prompt")),
        continue_final_message=bool(arguments.get("continue_final_message")),
        now=now,
    )


def _judge(text: str, place: Placement) -> Answer:
    preceding = text.find(TOOL_MARKER if place.preceding == "tool" else USER_MARKER)
    system = text.find(SYSTEM_MARKER)
    if preceding < 0:
        return Answer(False, f"the template does not write the {place.preceding} turn before it")
    if system < 0:
        return Answer(False, "the template drops the system turn")
    if system < preceding:
        return Answer(False, f"the template moves the system turn before the {place.preceding} turn")
    if place.kind == "between" and text.find(ASSISTANT_MARKER) < system:
        return Answer(False, "the template does not write the assistant turn after the system turn")
    return Answer(True, "the template leaves the system turn in place")
