"""oMLX's routes: a request of any dialect in chat form, the chat-template kwargs, and the second attempts.

The order of things differs by route (docs/servers.md, section 1; jundot/omlx): on `/v1/messages` the defaults
for `enable_thinking` and `preserve_thinking` are set before the template is probed, on the other two
afterwards, so that there the probe does without them.

A chat transcript sent to `messages` or `responses` keeps its messages as they are, with arguments of tool
calls parsed, since those routes take objects; a transcript of another dialect sent to a foreign route is
converted as on its own.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from ...conversation import Request
from ...templates.template import ChatTemplate
from ..api.anthropic_route import AnthropicRules, convert_anthropic
from ..api.chat_route import ChatRules, extract, supports_tools, template_tools, with_checked_arguments
from ..api.responses_route import ResponsesRules, convert_responses
from ..base import Action, Prepared, Retry
from ..rewrite.reasoning import (
    detects_preserve_thinking,
    is_native,
    normal_effort,
    other_effort,
    thinking_budget,
    thinking_type,
)
from ..rewrite.role_merge import merge_roles
from ..rewrite.tool_arguments import parse_arguments

_COUNTER = re.compile(r"\n{0,2}<total_tokens>\d+ tokens left</total_tokens>")


def without_counter(text: str) -> str:
    """Return a system text without Claude Code's remarks on how many tokens are left (jundot/omlx#2882)."""
    return _COUNTER.sub("", text)


@dataclass(frozen=True, slots=True)
class Routes:
    """What oMLX and its forks do on a route before and after they arrange the system turns.

    Attributes:
        version: the version of oMLX, one of `reasoning.VERSIONS`.
        multimodal: whether the model runs in the engine for images, which keeps contents as lists.
        model_type: `model_type` of the model's config, where it matters and is known.
    """

    version: str = "latest"
    multimodal: bool = False
    model_type: str | None = None

    @property
    def list_outputs(self) -> Literal["text", "json"]:
        """What a tool's output that is a list becomes on the responses route."""
        return "json" if self.version == "0.5.3" else "text"

    def to_chat(self, request: Request, template: ChatTemplate, route: str) -> Prepared:
        """Return a request in chat form, as the route extracts it, with the kwargs that the probe gets."""
        chat = self._converted(request, template, route)
        kwargs: Mapping[str, Any] = request.kwargs
        actions: list[Action] = []
        if route == "messages":
            if (thinking := thinking_type(request.fields)) is not None:
                kwargs = {**kwargs, "enable_thinking": thinking}
                actions.append(
                    Action("kwargs", (), f"enable_thinking={thinking}, from the body's thinking.type")
                )
            kwargs, more = with_defaults(kwargs, thinking_budget(request.fields), template)
            actions += more
        elif self.version != "0.5.3" and (effort := _effort(request)) is not None:
            kwargs = {"reasoning_effort": effort, **kwargs}
        partial = route != "responses" and still_partial(chat.request, request)
        after = chat.request.replace(kwargs=kwargs, partial=partial)
        return replace(chat, request=after, actions=(*chat.actions, *actions))

    def to_render(self, prepared: Prepared, template: ChatTemplate, route: str) -> Prepared:
        """Return what the template gets in the end: with all kwargs, and what is tried after an error."""
        request = prepared.request
        kwargs, actions = request.kwargs, prepared.actions
        if route != "messages":
            kwargs, more = with_defaults(kwargs, thinking_budget(request.fields), template)
            actions = (*actions, *more)
        if self.version != "0.5.3" and "reasoning_effort" in kwargs:
            kwargs = {**kwargs, "reasoning_effort": normal_effort(kwargs["reasoning_effort"])}
        partial = request.partial and not self.multimodal
        request = request.replace(kwargs=kwargs, partial=partial)
        return replace(prepared, request=request, actions=actions, retries=self._retries(request))

    def _converted(self, request: Request, template: ChatTemplate, route: str) -> Prepared:
        native = is_native(
            version=self.version,
            model_type=self.model_type,
            model_name=str(request.fields.get("model") or getattr(template, "source", "")),
            detected=detects_preserve_thinking(template),
        )
        if request.dialect == "anthropic-messages":
            anthropic = replace(
                ANTHROPIC,
                tool_role=supports_tools(template),
                reasoning="field" if native else "inline",
                images=self.multimodal,
                clean_system=None if self.version == "0.5.3" else without_counter,
            )
            converted = convert_anthropic(request, anthropic).then(merge_roles)
            return _with_template_tools(converted)
        if request.dialect == "openai-responses":
            responses = ResponsesRules(images=self.multimodal, list_outputs=self.list_outputs)
            return _with_template_tools(convert_responses(request, responses))
        given = _with_template_tools(Prepared(request))
        if route != "chat":
            return given.then(parse_arguments)
        chat = ChatRules(
            tool_role=supports_tools(template),
            reasoning="native" if native else "inline",
            images=self.multimodal,
        )
        extracted = with_checked_arguments(given).then(lambda messages: extract(messages, chat))
        return extracted if self.multimodal else extracted.then(merge_roles)

    def _retries(self, request: Request) -> tuple[Retry, ...]:
        """Return the attempts after an error: another reasoning effort, none, and bare after a TypeError."""
        retries: list[Retry] = []
        if self.version != "0.5.3" and "reasoning_effort" in request.kwargs:
            effort = other_effort(request.kwargs["reasoning_effort"])
            if effort is not None:
                kwargs = {**request.kwargs, "reasoning_effort": effort}
                action = Action("retried", (), f"reasoning_effort={effort} after an error")
                retries.append(Retry(request.replace(kwargs=kwargs), action))
            kwargs = {key: value for key, value in request.kwargs.items() if key != "reasoning_effort"}
            action = Action("retried", (), "without reasoning_effort after an error")
            retries.append(Retry(request.replace(kwargs=kwargs), action))
        return (*retries, *bare_retry(request, keep_tools=self.multimodal))


def bare_retry(request: Request, *, keep_tools: bool) -> tuple[Retry, ...]:
    """Return the attempt after a TypeError: without chat-template kwargs, and in most engines tools."""
    if not request.kwargs and (keep_tools or not request.tools):
        return ()
    what = "without chat-template kwargs" + ("" if keep_tools else " and tools")
    bare = request.replace(kwargs={}, tools=request.tools if keep_tools else None)
    return (Retry(bare, Action("retried", (), f"{what} after a TypeError"), kind="TypeError"),)


def still_partial(after: Request, before: Request) -> bool:
    """Return whether the turn that the client wants to be continued is still the last, and not joined."""
    if not (before.partial and before.messages and after.messages):
        return False
    return after.messages[-1].index == before.messages[-1].index


def _with_template_tools(start: Prepared) -> Prepared:
    return replace(start, request=start.request.replace(tools=template_tools(start.request.tools)))


def with_defaults(
    kwargs: Mapping[str, Any], budget: int | None, template: ChatTemplate
) -> tuple[Mapping[str, Any], list[Action]]:
    """Set what the server sets where the request does not: thinking with a budget, and kept reasoning."""
    from .omlx_kwargs import ModelSettings, merge_kwargs

    merge = merge_kwargs(
        ModelSettings(),
        kwargs,
        thinking_budget=budget,
        preserve_thinking_default=detects_preserve_thinking(template),
    )
    set_here = [step for step in merge.steps if step.key not in kwargs and step.outcome == "set"]
    return merge.kwargs, [Action("kwargs", (), f"{step.key}={step.value}: {step.why}") for step in set_here]


def _effort(request: Request) -> Any:
    reasoning = request.fields.get("reasoning")
    if isinstance(reasoning, Mapping):
        return reasoning.get("effort")
    return request.fields.get("reasoning_effort")


def document_text(block: Mapping[str, Any]) -> str:
    """Return the text of an Anthropic document block, or the server's remark that it cannot read it."""
    source = block.get("source")
    source = source if isinstance(source, Mapping) else {}
    title = block.get("title") or ""
    kind, data = source.get("media_type", ""), source.get("data", "")
    if kind != "text/plain" or not data:
        what = "oMLX does not provide PDF parsing. Send as text instead."
        return f"[Document: {title or 'untitled'} ({kind}) — {what}]"
    try:
        text = base64.b64decode(str(data)).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return f"[Document: {title or 'untitled'} — failed to decode]"
    return f"[Document: {title}]\n{text}" if title else text


#: How oMLX and its forks write Anthropic messages, but for what the template and the engine decide.
ANTHROPIC = AnthropicRules(
    after_thinking="\n",
    split_results=False,
    call_type=False,
    marks_boundaries=True,
    document=document_text,
    needs_result=True,
)
