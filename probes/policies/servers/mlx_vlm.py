"""mlx-vlm: in place on two routes, the hoist on the third; three versions of the messages route.

Before pull request 2052 `/v1/messages` moved every system text into the top-level system text; since then
only those before the first turn, and later ones stay where they are (`version=before-2052` for the older).
Release 0.7.10 (`version=0.7.10`) makes the later ones user turns, and hoists on chat completions, where
earlier ones pass messages on. `/v1/responses` hoists in all. `route=none` is the messages route's system
rules alone (docs/servers.md, section 6; Blaizzy/mlx-vlm#2001, #2052, mlx_vlm/server/anthropic.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...conversation import Message, Request
from ...templates.template import ChatTemplate
from ..api.anthropic_route import AnthropicRules
from ..api.responses_route import ResponsesRules
from ..api.routes import BlockJoins, as_chat, route_of, with_kwargs
from ..base import Action, Messages, Prepared, Rewrite
from ..kind import ROUTES, PolicyKind, PolicyOption, ReuseReports
from ..rewrite.part_texts import as_system, merge_into_first, part_texts, stripped, whole_text
from ..rewrite.preparation import never_continued, thinking_asked
from ..rewrite.system_turns import each_changed, has_role, indices, is_system, keep, system_runs
from ..rewrite.texts import Text, join, part_text, rebuilt
from ..rewrite.tool_arguments import parse_arguments

BEFORE = "before-2052"
RELEASE = "0.7.10"
ANTHROPIC = AnthropicRules(reasoning="dropped", images=True, results_last=True, dropped_system=())
RESPONSES = ResponsesRules(reasoning=False, join_calls=False, images=True)
JOINS = BlockJoins("\n")


@dataclass(frozen=True, slots=True)
class MlxVlm:
    """mlx-vlm's preparation of messages.

    Attributes:
        name: the policy as the person named it.
        route: the server's route; None for that of the request's dialect.
        version: `before-2052`, `0.7.10`, or None for pull request 2052 itself.
    """

    name: str
    route: str | None = None
    version: str | None = None

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return the request as the server's template gets it."""
        route = route_of(self.route, request)
        if route == "none":
            return Prepared(request).then(self._place)
        done = as_chat(_trimmed(request), ANTHROPIC, RESPONSES, JOINS)
        if route == "messages":
            done = done.then(as_system).then(self._place)
        elif route == "responses":
            done = done.then(_hoist)
        elif self.version == RELEASE:
            done = done.then(_flatten).then(_hoist)
        else:
            done = done.then(lambda given: keep(given, "passed on where it stands"))
        done = never_continued(done.then(lambda given: parse_arguments(given, _loaded)))
        if self.version == RELEASE and done.request.tools:
            tools = tuple(_sorted_keys(tool) for tool in done.request.tools)
            done = Prepared(done.request.replace(tools=tools), done.actions)
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


def _flatten(messages: Messages) -> Rewrite:
    """Make one text of each content list that is no user's: its texts joined by spaces, others left out."""
    return each_changed(messages, _flat, "converted", "the texts of its list become one text")


def _flat(message: Message) -> Message:
    if has_role(message, "user") or not isinstance(message.content, list):
        return message
    text = stripped(join((text for text in part_texts(message) if text), " "))
    return rebuilt(message, text.text, text.pieces())


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
        "mlx-vlm: later system turns stay in place on /v1/messages since August 2026; /v1/responses hoists",
        lambda name, options: MlxVlm(name, options.get("route"), options.get("version")),
        source="Blaizzy/mlx-vlm#2052; release 0.7.10",
        date="2026-08-27",
        evidence={"release 0.7.10": "read", "pull request 2052, and before": "reported"},
        cache="mlx-vlm",
        drift="none of its own on /v1/messages and chat, since a later system turn leaves what stands before "
        "it as it was; each one on /v1/responses, and with version=before-2052 on /v1/messages, lengthens "
        "the first system message",
        options={
            "route": ROUTES,
            "version": PolicyOption((BEFORE, RELEASE), otherwise="the code of pull request 2052"),
        },
        reuse_reports=ReuseReports(log=True),
        suite="local",
    ),
)
