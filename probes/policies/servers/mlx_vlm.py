"""mlx-vlm: later system turns become user turns on one route and move to the front on two; three versions.

Before pull request 2052 `/v1/messages` moved every system text into the top-level system text
(`version=before-2052`); since then only those before the first turn, and later ones stayed where they are
(`version=2052`). Release 0.7.10 makes the later ones user turns, and hoists on chat completions, where
earlier versions pass messages on. `/v1/responses` hoists in all. `route=none` is the messages route's system
rules alone (docs/servers.md, section 6; Blaizzy/mlx-vlm#2001, #2052, mlx_vlm/server/).

A text model is what is followed: with a vision model the server keeps lists, and turns without tool calls
lose their reasoning.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...conversation import Message, Request
from ...errors import RenderError
from ...templates.template import ChatTemplate
from ..api.anthropic_route import AnthropicRules
from ..api.responses_route import ResponsesRules
from ..api.routes import BlockJoins, as_chat, route_of, with_kwargs
from ..base import Action, Messages, Prepared, Rewrite
from ..kind import ROUTES, PolicyKind, PolicyOption, ReuseReports
from ..rewrite.part_texts import as_system, merge_into_first, part_texts, stripped, whole_text
from ..rewrite.preparation import never_continued, thinking_asked
from ..rewrite.reasoning import template_text, thinking_budget, thinking_type
from ..rewrite.system_turns import done, each_changed, has_role, indices, is_system, keep, system_runs
from ..rewrite.texts import Text, join, part_text, rebuilt
from ..rewrite.tool_arguments import parse_arguments

BEFORE = "before-2052"
PULLED = "2052"
RELEASE = "0.7.10"
#: Efforts that turn thinking off.
_OFF = ("none", "off", "disabled", "false", "0")
ANTHROPIC = AnthropicRules(reasoning="dropped", images=True, results_last=True, dropped_system=())
RESPONSES = ResponsesRules(reasoning=False, join_calls=False, images=True)
JOINS = BlockJoins("\n")


@dataclass(frozen=True, slots=True)
class MlxVlm:
    """mlx-vlm's preparation of messages.

    Attributes:
        name: the policy as the person named it.
        route: the server's route; None for that of the request's dialect.
        version: `before-2052`, `2052` or `0.7.10`.
    """

    name: str
    route: str | None = None
    version: str = RELEASE

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return the request as the server's template gets it."""
        route = route_of(self.route, request)
        if route == "none":
            return Prepared(request).then(self._place)
        done = as_chat(_trimmed(request), ANTHROPIC, RESPONSES, JOINS)
        if self.version != RELEASE:
            return self._before_release(done, route, request)
        if request.dialect == "openai-responses":
            done = done.then(_without_empty_answers)
            done = replace(done, request=done.request.replace(tools=_response_tools(request.tools)))
        done = done.then(_prompted)
        if route == "messages":
            done = done.then(as_system).then(self._place).then(_with_contents)
        else:
            done = done.then(_hoist).then(_with_contents)
            if not any(map(_says_something, done.request.messages)):
                why = "HTTP 400: the request must include at least one content that is not empty"
                done = replace(done, error=RenderError("ValueError", why))
        tools = tuple(_sorted_keys(tool) for tool in done.request.tools or ()) or None
        done = replace(done, request=done.request.replace(tools=tools, kwargs={}))
        return with_kwargs(never_continued(done), _settings(request, template), "what the server sets")

    def _before_release(self, done: Prepared, route: str, request: Request) -> Prepared:
        if route == "messages":
            done = done.then(as_system).then(self._place)
        elif route == "responses":
            done = done.then(_hoist)
        else:
            done = done.then(lambda given: keep(given, "passed on where it stands"))
        done = never_continued(done.then(lambda given: parse_arguments(given, _loaded)))
        thinks = bool(thinking_asked(request))
        return with_kwargs(done, {"enable_thinking": thinks}, "the server always sets it")

    def _place(self, messages: Messages) -> Rewrite:
        if self.version == BEFORE:
            return merge_into_first(messages, _system_texts, "\n", "moved into the first system message")
        first = next((run.stop for run in system_runs(messages) if run.leads), 0)
        lead = merge_into_first(messages[:first], _system_texts, "\n", "")
        return lead.then(lambda given: self._later(given, messages[first:]))

    def _later(self, lead: Messages, rest: Messages) -> Rewrite:
        later = indices([message for message in rest if is_system(message)])
        if not later:
            return Rewrite((*lead, *rest))
        if self.version != RELEASE:
            return Rewrite((*lead, *rest), (Action("kept", later, "stays where it is"),))
        users = (message.replace(role="user") if is_system(message) else message for message in rest)
        return Rewrite((*lead, *users), (Action("noted", later, "becomes a user turn where it stands"),))


def _hoist(messages: Messages) -> Rewrite:
    return merge_into_first(messages, whole_text, "\n\n", "moved into the first system message")


def _system_texts(message: Message, leads: bool) -> list[Text]:
    """Return a system message's text on the messages route: that of a list is trimmed, a string is not."""
    if not isinstance(message.content, list):
        return whole_text(message, leads)
    text = stripped(join((text for text in part_texts(message) if text), "\n"))
    return [text] if text else []


def _prompted(messages: Messages) -> Rewrite:
    """Make each message what `_chat_message_to_prompt` makes of it: one text, and the keys that it knows."""
    done = each_changed(
        messages, _known, "converted", "its content becomes one text, reasoning gets two names"
    )
    return done.then(lambda given: parse_arguments(given, _loaded))


def _known(message: Message) -> Message:
    data = message.data
    kept = ("role", "content", "tool_calls", "tool_call_id", "name")
    new = {key: data[key] for key in kept if key in data and (data[key] is not None or key == "content")}
    reasoning = data.get("reasoning_content")
    reasoning = data.get("reasoning") if reasoning is None else reasoning
    if reasoning is not None:
        new |= {"reasoning_content": reasoning, "reasoning": reasoning}
    same = message if new == data else Message(new, message.index, message.pieces)
    content = message.content
    if not isinstance(content, list) or any(map(_is_picture, content)):
        return same
    text = stripped(join([text for text in part_texts(message) if text], " "))
    return rebuilt(same, text.text, text.pieces())


def _is_picture(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in ("image_url", "input_image")


def _with_contents(messages: Messages) -> Rewrite:
    """Give turns without content an empty one; results of tools stay without."""
    filled = (
        message.replace(content="") if message.content is None and not has_role(message, "tool") else message
        for message in messages
    )
    return Rewrite(tuple(filled))


def _without_empty_answers(messages: Messages) -> Rewrite:
    """Leave out assistant turns without text and calls."""
    empty = [
        message
        for message in messages
        if has_role(message, "assistant") and not (message.content or message.data.get("tool_calls"))
    ]
    kept = tuple(message for message in messages if message not in empty)
    return Rewrite(kept, done("dropped", empty, "an assistant turn with nothing in it"))


def _says_something(message: Message) -> bool:
    data = message.data
    texts = [text.text for text in part_texts(message)]
    texts += [data[key] for key in ("reasoning_content", "reasoning") if isinstance(data.get(key), str)]
    pictures = isinstance(message.content, list) and any(map(_is_picture, message.content))
    return pictures or bool(data.get("tool_calls")) or any(text.strip() for text in texts)


def _response_tools(tools: Iterable[Mapping[str, Any]] | None) -> tuple[Mapping[str, Any], ...] | None:
    written = tuple(
        {
            "type": "function",
            "function": {
                "name": tool.get("name"),
                "description": tool.get("description"),
                "parameters": tool.get("parameters") or {},
            },
        }
        for tool in tools or ()
        if tool.get("type") == "function"
    )
    return written or None


def _settings(request: Request, template: ChatTemplate) -> dict[str, Any]:
    """Return the template's kwargs, of which the request's own `chat_template_kwargs` are none."""
    fields = request.fields
    enabled, effort = _reasoning(fields)
    if request.dialect == "anthropic-messages":
        enabled = thinking_type(fields) if enabled is None else enabled
    if "enable_thinking" in fields:
        enabled = bool(fields["enable_thinking"])
    kwargs: dict[str, Any] = {"enable_thinking": bool(enabled)}
    if enabled is not None:
        kwargs["reasoning"] = enabled
    if effort is not None:
        kwargs["reasoning_effort"] = kwargs["reasoning_strength"] = effort
    if (budget := thinking_budget(fields)) is not None:
        kwargs["thinking_budget"] = budget
    if enabled and "thinking_mode" in template_text(template):
        kwargs["thinking_mode"] = "enabled"
    return kwargs


def _reasoning(fields: Mapping[str, Any]) -> tuple[bool | None, str | None]:
    """Return what `reasoning` or `reasoning_effort` say: whether to think, and the effort, in lower case."""
    reasoning = fields.get("reasoning")
    if isinstance(reasoning, Mapping):
        enabled, effort = _effort(reasoning.get("effort"))
        return (True if enabled is None else enabled), effort
    if isinstance(reasoning, bool):
        return reasoning, None
    enabled, effort = _effort(reasoning)
    return (enabled, effort) if enabled is not None else _effort(fields.get("reasoning_effort"))


def _effort(value: Any) -> tuple[bool | None, str | None]:
    effort = "" if value is None else str(value).strip().lower()
    return (effort not in _OFF, effort) if effort else (None, None)


def _trimmed(request: Request) -> Request:
    """Return an Anthropic request with the texts of each content list joined, trimmed and put first."""
    if request.dialect != "anthropic-messages":
        return request
    system = _trimmed_text(request.system) if isinstance(request.system, list) else request.system
    messages = tuple(_trimmed_message(message) for message in request.messages)
    return request.replace(messages=messages, system=system)


def _trimmed_message(message: Message) -> Message:
    blocks = message.content
    if not isinstance(blocks, list) or any(map(_is_image, blocks)):
        return message
    others = [_trimmed_result(block) for block in blocks if part_text(block) is None]
    text = _trimmed_text(blocks)
    return message.replace(content=[{"type": "text", "text": text}, *others] if text else others)


def _trimmed_text(blocks: list[Any]) -> str:
    return "\n".join(text for block in blocks if (text := part_text(block))).strip()


def _trimmed_result(block: Any) -> Any:
    content = block.get("content") if isinstance(block, Mapping) else None
    if not isinstance(content, list) or any(part_text(part) is None for part in content):
        return block
    return {**block, "content": _trimmed_text(content)}


def _is_image(block: Any) -> bool:
    return isinstance(block, Mapping) and block.get("type") == "image"


def _sorted_keys(value: Any) -> Any:
    """Return a tool with the keys of every object sorted, so that equal schemas are one text."""
    if isinstance(value, Mapping):
        return {key: _sorted_keys(value[key]) for key in sorted(value)}
    return [_sorted_keys(item) for item in value] if isinstance(value, list | tuple) else value


def _loaded(text: str) -> Any:
    """Return arguments that are no JSON object as the server has them: other JSON as it is, else none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {}


KINDS = (
    PolicyKind(
        "mlx-vlm",
        "mlx-vlm: later system turns become user turns on /v1/messages; chat and /v1/responses hoist",
        lambda name, options: MlxVlm(name, options.get("route"), options["version"]),
        source="mlx-vlm 0.7.10; Blaizzy/mlx-vlm#2052",
        date="2026-12-01",
        evidence={"release 0.7.10, text models": "run", "pull request 2052, and before": "reported"},
        cache="mlx-vlm",
        drift="none of its own on /v1/messages, since a later system turn leaves what stands before it as it "
        "was; each one on chat and /v1/responses, and with version=before-2052 on /v1/messages, lengthens "
        "the first system message",
        options={
            "route": ROUTES,
            "version": PolicyOption((BEFORE, PULLED, RELEASE), RELEASE),
        },
        reuse_reports=ReuseReports(log=True),
        suite="local",
    ),
)
