"""Which route of a server a request is sent to, and the request in OpenAI chat form.

The conversions themselves are in `anthropic_route` and `responses_route`; what is here prepares an Anthropic
request for servers whose joins of blocks differ from one place to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...conversation import Dialect, Message, Request
from ..base import Action, Prepared
from ..rewrite.system_turns import is_system
from ..rewrite.texts import part_text
from .anthropic_route import AnthropicRules, convert_anthropic, result_text
from .responses_route import ResponsesRules, convert_responses

_ROUTES: Mapping[Dialect, str] = {
    "openai-chat": "chat",
    "anthropic-messages": "messages",
    "openai-responses": "responses",
}


@dataclass(frozen=True, slots=True)
class BlockJoins:
    """How a server joins the blocks of an Anthropic request.

    Attributes:
        between_system: joins the blocks of a system text, the top-level one or one within the conversation.
        between_results: joins the blocks of a tool result.
        clean_system: what is done to each block of the top-level system text; empty ones are left out.
    """

    between_system: str = ""
    between_results: str = "\n"
    clean_system: Callable[[str], str] | None = None


def route_of(route: str | None, request: Request) -> str:
    """Return the route that was asked for, or that of the API which the request was written for."""
    return route or _ROUTES[request.dialect]


def as_chat(
    request: Request, anthropic: AnthropicRules, responses: ResponsesRules, joins: BlockJoins | None = None
) -> Prepared:
    """Return a request in OpenAI chat form, by the server's rules for its own API.

    Args:
        request: what the client sent.
        anthropic: how Anthropic messages are written.
        responses: how Responses items are written.
        joins: how blocks are joined; None for by `anthropic` alone.
    """
    if request.dialect == "anthropic-messages":
        return convert_anthropic(joined_blocks(request, joins) if joins else request, anthropic)
    if request.dialect == "openai-responses":
        return convert_responses(request, responses)
    return Prepared(request)


def joined_blocks(request: Request, joins: BlockJoins) -> Request:
    """Return an Anthropic request with the blocks of its system texts and tool results as one text each."""
    clean = joins.clean_system or (lambda text: text)
    system = request.system
    if isinstance(system, list):
        texts = (clean(text) for block in system if (text := part_text(block)))
        system = joins.between_system.join(text for text in texts if text)
    elif isinstance(system, str):
        system = clean(system)
    messages = tuple(_joined_message(message, joins) for message in request.messages)
    return request.replace(system=system, messages=messages)


def _joined_message(message: Message, joins: BlockJoins) -> Message:
    content = message.content
    if not isinstance(content, list):
        return message
    if is_system(message):
        texts = [text for block in content if (text := part_text(block)) is not None]
        return message.replace(content=joins.between_system.join(texts))
    blocks = [_joined_result(block, joins) if _is_result(block) else block for block in content]
    return message if blocks == content else message.replace(content=blocks)


def _is_result(block: Any) -> bool:
    return isinstance(block, Mapping) and block.get("type") == "tool_result"


def _joined_result(block: Mapping[str, Any], joins: BlockJoins) -> Mapping[str, Any]:
    """Return a tool result with its texts as one; one that holds anything else stays as it is."""
    content = block.get("content")
    if not isinstance(content, list) or any(part_text(part) is None for part in content):
        return block
    return {**block, "content": result_text(content, joins.between_results)}


def with_kwargs(
    prepared: Prepared, defaults: Mapping[str, Any], why: str = "", *, values: bool = True
) -> Prepared:
    """Return what was prepared with kwargs that the server sets where the request does not.

    Args:
        prepared: what was prepared so far.
        defaults: the server's kwargs.
        why: where they come from; by default fields of the request's body.
        values: whether the action shows the values, which may be long or of the day.
    """
    added = {name: value for name, value in defaults.items() if name not in prepared.request.kwargs}
    if not added:
        return prepared
    what = ", ".join(f"{name}={value!r}" if values else name for name, value in added.items())
    action = Action("kwargs", (), f"{what}: {why or 'from other fields of the request'}")
    request = prepared.request.replace(kwargs={**prepared.request.kwargs, **added})
    return replace(prepared, request=request, actions=(*prepared.actions, action))


def body_effort(request: Request) -> Any:
    """Return the reasoning effort that the request's body names in its API's way, or None."""
    fields = request.fields
    for name in ("output_config", "reasoning"):
        inner = fields.get(name)
        if isinstance(inner, Mapping) and inner.get("effort") is not None:
            return inner["effort"]
    return fields.get("reasoning_effort")


def body_settings(request: Request) -> dict[str, Any]:
    """Return the kwargs that a server makes of a body which hands all that a template may want to it."""
    effort = body_effort(request)
    settings = {} if effort is None else {"reasoning_effort": effort}
    if request.fields.get("add_generation_prompt") is False and not request.partial:
        settings["add_generation_prompt"] = False
    return settings
