"""fusion-mlx: one system message, always the first, on every route.

A fork of oMLX. Its engine joins all system texts into the first message; a conversation without any gets a
default one. What comes before differs by route: `/v1/messages` joins the system turns of the conversation
line by line, `/v1/responses` hands contents on as lists and arguments as text (docs/servers.md, section 3;
dahai80/fusion-mlx 0.10.24, fusion_mlx/api, fusion_mlx/routes_internal and fusion_mlx/engines/batched.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...conversation import TOP_LEVEL, Message, Request
from ...errors import RenderError
from ...templates.template import ChatTemplate
from ..api.anthropic_route import convert_anthropic
from ..api.chat_route import supports_tools, template_tools, with_checked_arguments
from ..api.responses_route import ResponsesRules, convert_responses
from ..api.routes import body_effort, route_of, with_kwargs
from ..base import Action, Messages, Prepared, Retry, Rewrite
from ..kind import ROUTES, PolicyKind, PolicyOption
from ..rewrite.part_texts import lines_after_top, part_texts, without_empty_blocks
from ..rewrite.preparation import never_continued
from ..rewrite.reasoning import detects_preserve_thinking
from ..rewrite.role_merge import merge_roles
from ..rewrite.system_turns import done, each_changed, is_system, keep, strict_hoist
from ..rewrite.texts import flat_text, join, rebuilt
from ..rewrite.tool_arguments import fill_arguments, parse_arguments
from .omlx_routes import ANTHROPIC

DEFAULT_SYSTEM = "You are a helpful assistant."
#: A system text with this in it makes the chat route think, unless the request says otherwise.
CLAUDE_CODE = "You are Claude Code"
#: The reasoning efforts that the Responses route takes.
EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "none")
RESPONSES = ResponsesRules(
    reasoning=False, join_calls=False, list_outputs="json", raw_arguments=True, lists=True, images=True
)
_KEPT = frozenset({"role", "content", "tool_calls", "tool_call_id", "name"})


@dataclass(frozen=True, slots=True)
class FusionMlx:
    """fusion-mlx's preparation of a request for the template.

    Attributes:
        name: the policy as the person named it.
        route: `chat`, `messages` or `responses`; `none` for the engine's rules alone, on messages as given;
            None for the route of the transcript's dialect.
        qwen3: whether the model's `model_type` is `qwen3`, which `/v1/messages` does not let think.
    """

    name: str
    route: str | None = None
    qwen3: bool = False

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return the request with exactly one system message, the first."""
        route = route_of(self.route, request)
        chat = Prepared(request) if route == "none" else _converted(request, template)
        placed = never_continued(chat).then(one_system_message)
        if route != "none":
            placed = self._with_thinking(placed, request, route)
        if detects_preserve_thinking(template):
            why = "because the template mentions it"
            placed = with_kwargs(placed, {"preserve_thinking": True}, why)
        return replace(placed, retries=_retries(placed.request))

    def _with_thinking(self, start: Prepared, request: Request, route: str) -> Prepared:
        """Set `enable_thinking` as the route does; without a word of the request mostly to false."""
        fields = request.fields
        effort = body_effort(request)
        asked = fields.get("enable_thinking") if route != "messages" else None
        kind = (
            (fields.get("thinking") or {}).get("type") if isinstance(fields.get("thinking"), dict) else None
        )
        if route == "responses":
            if effort is not None and effort not in EFFORTS:
                start = replace(start, error=RenderError("HTTP 400", f"no reasoning effort is {effort!r}"))
            if isinstance(asked, bool):
                kwargs = {**start.request.kwargs, "enable_thinking": asked}
                start = replace(start, request=start.request.replace(kwargs=kwargs))
            return with_kwargs(start, {"enable_thinking": False}, "unless the request says otherwise")
        if route == "messages":
            thinks = True if kind == "enabled" else False if kind == "disabled" or self.qwen3 else None
        elif kind == "disabled":
            thinks = False
        elif isinstance(asked, bool):
            thinks = asked
        else:
            named = any(CLAUDE_CODE in flat_text(each).text for each in request.messages if is_system(each))
            thinks = kind == "enabled" or named
        return start if thinks is None else with_kwargs(start, {"enable_thinking": thinks})


def _converted(request: Request, template: ChatTemplate) -> Prepared:
    """Return a request in the form in which the engine gets it."""
    if request.dialect == "anthropic-messages":
        rules = replace(ANTHROPIC, tool_role=supports_tools(template), reasoning="field", images=True)
        given = tuple(map(without_empty_blocks, request.messages))
        chat = convert_anthropic(request.replace(messages=given), rules).then(_lines_first).then(merge_roles)
    elif request.dialect == "openai-responses":
        known = tuple(item for item in request.messages if item.data.get("type"))
        chat = convert_responses(request.replace(messages=known), RESPONSES)
        chat = chat.then(fill_arguments).then(_drop_empty_systems)
        if any(map(_is_bare, known)):
            chat = replace(
                chat, error=RenderError("ValueError", "the content of a message must not be empty")
            )
    else:
        chat = with_checked_arguments(Prepared(request)).then(_flattened).then(parse_arguments)
    tools = template_tools(chat.request.tools, describe=False)
    return replace(chat, request=chat.request.replace(tools=tools))


def one_system_message(messages: Messages) -> Rewrite:
    """Join all system texts into the first message, or insert the default one where there is none."""
    systems = [message for message in messages if is_system(message)]
    others = tuple(message for message in messages if not is_system(message))
    if any(flat_text(message) for message in systems):
        return strict_hoist(messages, "moved into the first system block")
    if systems:
        empty = Message({"role": "system", "content": ""}, systems[0].index)
        first = systems[0] if systems[0].data == empty.data else empty
        return Rewrite((first, *others), keep(messages, "kept, although empty").actions)
    if not others:
        return Rewrite(messages)
    default = Message({"role": "system", "content": DEFAULT_SYSTEM}, TOP_LEVEL)
    return Rewrite(
        (default, *others), (Action("inserted", (), "the server's own system message comes first"),)
    )


def _lines_first(messages: Messages) -> Rewrite:
    """Join all system turns into the first message, those of the conversation line by line."""
    systems = [message for message in messages if is_system(message)]
    first = lines_after_top(systems)
    others = tuple(message for message in messages if not is_system(message))
    moved = [message for message in systems if message.index != TOP_LEVEL and flat_text(message)]
    empty = [message for message in systems if not flat_text(message)]
    actions = done("hoisted", moved, "moved into the first system block") + done("dropped", empty, "no text")
    return Rewrite(others if first is None else (first, *others), actions)


def _drop_empty_systems(messages: Messages) -> Rewrite:
    empty = [message for message in messages if is_system(message) and not flat_text(message)]
    kept = tuple(message for message in messages if message not in empty)
    return Rewrite(kept, done("dropped", empty, "no text"))


def _is_bare(item: Message) -> bool:
    """Tell whether an item is a message without content, or with a part without text."""
    content = item.content
    if item.data.get("type") != "message" or isinstance(content, str):
        return False
    parts = content or ()
    return not parts or any(part.get("text") == "" for part in parts if isinstance(part, Mapping))


def _flattened(messages: Messages) -> Rewrite:
    why = "its content becomes one text, and its further keys are left out"
    return each_changed(messages, _flat, "converted", why)


def _flat(message: Message) -> Message:
    """Return a chat message with a text as content, of its parts those with text, and few keys."""
    data = {key: value for key, value in message.data.items() if key in _KEPT and (value or key == "content")}
    texts = [text for text in part_texts(message) if text]
    if isinstance(message.content, str):
        same = data.keys() == message.data.keys()
        return message if same else Message(data, message.index, message.pieces)
    own = Message({"role": message.role, **data, "content": ""}, message.index, message.pieces)
    if not texts:
        return own.replace(pieces=(), content="")
    text = join(texts, "\n")
    return rebuilt(own, text.text, text.pieces())


def _retries(request: Request) -> tuple[Retry, ...]:
    retries = []
    if request.kwargs:
        action = Action("retried", (), "without chat-template kwargs after a TypeError")
        retries.append(Retry(request.replace(kwargs={}), action, kind="TypeError"))
    if request.tools:
        action = Action("retried", (), "without chat-template kwargs and tools after a TypeError")
        retries.append(Retry(request.replace(kwargs={}, tools=None), action, kind="TypeError"))
    return tuple(retries)


KINDS = (
    PolicyKind(
        "fusion-mlx",
        "fusion-mlx: one system message, always the first; a default one where there is none",
        lambda name, options: FusionMlx(name, options.get("route"), options.get("model_type") == "qwen3"),
        source="dahai80/fusion-mlx 0.10.24",
        date="2026-10",
        evidence={"system turns": "run", "conversions of the routes": "run"},
        cache="fusion-mlx",
        drift="Every new system turn makes the first message longer, so that everything after it is another "
        "prompt.",
        options={"route": ROUTES, "model_type": PolicyOption(("qwen3",), otherwise="another one")},
        suite="forks",
    ),
)
