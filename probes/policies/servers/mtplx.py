"""MTPLX: later system turns as user turns since release 2.12, the strict hoist before issue 477.

The server takes over oMLX's message handling, without its probe: every route goes through the same function,
which joins the leading system texts and then neighbouring turns of one role; a later system turn becomes a
user turn where it stands, which the user turn beside it then absorbs. Before that function come the server's
own steps: contents become texts, reasoning a field, turns without content vanish; after it a contract about
the tools is added to the first system turn (mtplx_contract.py). `version=2.11` is the release before issue
477 was closed, where all system texts were joined in front; its other steps are not known. `route=none` is
the system rule alone (docs/servers.md, section 7; youssofal/MTPLX#477, mtplx/server/openai.py, responses.py,
omlx_bridge/adapter.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ...conversation import TOP_LEVEL, Message, Request
from ...errors import RenderError
from ...templates.template import ChatTemplate
from ..api.anthropic_route import BILLING_HEADER, AnthropicRules
from ..api.chat_route import is_void
from ..api.responses_route import ResponsesRules
from ..api.routes import BlockJoins, as_chat, route_of
from ..base import Action, Messages, Prepared, Retry, Rewrite
from ..kind import ROUTES, PolicyKind, PolicyOption
from ..rewrite.own_template import extended
from ..rewrite.part_texts import as_system, is_text_part, merge_into_first, part_texts, stripped
from ..rewrite.preparation import never_continued
from ..rewrite.reasoning import template_text
from ..rewrite.role_merge import merge_roles
from ..rewrite.system_turns import done, has_role, is_system, strict_hoist, system_runs
from ..rewrite.texts import Text, content_text, join, part_text, rebuilt
from ..rewrite.tool_arguments import parse_arguments
from ..rewrite.user_notes import BOUNDARY_KEY
from .mtplx_contract import SENTINEL, tool_contract

RELEASE = "2.12"
HOISTING = "2.11"
BETWEEN_TEXTS = "\n\n"
ANTHROPIC = AnthropicRules(
    reasoning="field", images=True, between_blocks="", between_thoughts="", dropped_system=()
)
RESPONSES = ResponsesRules(reasoning=False, between_parts="", join_calls="calls")
JOINS = BlockJoins(between_system="", between_results="")
#: What the server puts where an image was; its tokens are the model's own.
IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
#: A word in templates that leave out the reasoning before the last question themselves.
CHECKPOINT = "last_query_index"
_QWEN38 = "qwen3.8"
_QWEN38_EFFORTS = {"none": "low", "minimal": "low", "low": "low", "medium": "medium"}
_QWEN38_DEFAULT = "medium"
_OPEN_THINKING = re.compile(r"(?is)(<\|im_start\|>assistant[^\n\r]*[\r\n]+)<think>\s*$")
#: What is rendered where the model's template raises and there are no tools.
PLAIN = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:"
_LEAST_REPEATED, _MOST_REPEATED = 8, 4000

# Of `/v1/responses`, which takes less than other servers (mtplx/server/responses.py).
_FIELDS = frozenset(
    "model max_output_tokens max_tokens max_completion_tokens temperature top_p top_k presence_penalty "
    "frequency_penalty seed stop stream tool_choice parallel_tool_calls metadata user include "
    "stream_options prompt_cache_key client_metadata service_tier reasoning text store background "
    "previous_response_id".split()
)
_TEXTS = ("input_text", "output_text", "text")
_EFFORTS = ("auto", "low", "medium", "high", "xhigh")
_CLIENT_TOOLS = ("function", "custom", "namespace")


@dataclass(frozen=True, slots=True)
class Mtplx:
    """MTPLX's preparation of messages.

    Attributes:
        name: the policy as the person named it.
        route: the server's route; None for that of the request's dialect.
        version: one of `RELEASE` and `HOISTING`.
        tool_prompt: the server's `--tool-prompt-mode`: `native` leaves the tools to the template, `compact`
            to the contract, `hybrid` to both.
        family: the family that the server takes the model for, where that matters.
    """

    name: str
    route: str | None = None
    version: str = RELEASE
    tool_prompt: str = "hybrid"
    family: str = "other"

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return the request as the server's template gets it."""
        if route_of(self.route, request) == "none":
            return Prepared(request).then(self._consolidate)
        start = as_chat(request.replace(system=_system_text(request)), ANTHROPIC, RESPONSES, JOINS)
        if self.version == HOISTING:
            chat = start.then(as_system).then(lambda given: parse_arguments(given, lambda text: {}))
            return never_continued(chat.then(self._consolidate).then(merge_roles))
        if (why := _refusal(request, start.request.messages)) is not None:
            start = start.refused(400, why)
        if request.dialect == "openai-responses":
            start = start.then(_join_instructions)
        tools = tuple(json.loads(json.dumps(tool, sort_keys=True)) for tool in start.request.tools or ())
        thinks = _thinks(request)
        scoped = self.family != _QWEN38 and CHECKPOINT in template_text(template)
        if tools:
            start = start.then(_join_repeated)
        chat = start.then(as_system).then(lambda given: _turns(given, scoped or thinks))
        chat = (
            chat.then(parse_arguments).then(self._consolidate).then(_drop_void).then(merge_roles).then(_any)
        )
        if tools and self.tool_prompt != "native":
            now = request.now or getattr(template, "now", None) or datetime.now()
            chat = chat.then(lambda given: _with_contract(given, tool_contract(tools, now)))
        chat = replace(
            chat,
            request=chat.request.replace(tools=tools if tools and self.tool_prompt != "compact" else None),
        )
        chat = never_continued(self._with_kwargs(chat, request, thinks, scoped))
        return _with_retries(chat if thinks else _with_thinking_closed(chat, template))

    def _consolidate(self, messages: Messages) -> Rewrite:
        if self.version == HOISTING:
            return strict_hoist(messages, "moved into the first system message")
        first = next((run.stop for run in system_runs(messages) if run.leads), 0)
        lead = merge_into_first(messages[:first], _texts, BETWEEN_TEXTS, "")
        return lead.then(lambda given: _later(given, messages[first:]))

    def _with_kwargs(self, chat: Prepared, request: Request, thinks: bool, scoped: bool) -> Prepared:
        """Return the request with the server's own chat-template kwargs, which are the only ones."""
        kwargs: dict[str, Any] = {"enable_thinking": thinks, "preserve_thinking": not scoped}
        if self.family == _QWEN38 and thinks:
            asked = request.fields.get("reasoning_effort")
            kwargs["reasoning_effort"] = (
                _QWEN38_DEFAULT if asked in (None, "auto") else _QWEN38_EFFORTS.get(str(asked), "xhigh")
            )
        lost = sorted(set(chat.request.kwargs) - set(kwargs))
        why = ", ".join(f"{name}={value!r}" for name, value in kwargs.items())
        why += f"; it takes no {', '.join(lost)} from requests" if lost else ""
        action = Action("kwargs", (), why)
        return replace(chat, request=chat.request.replace(kwargs=kwargs), actions=(*chat.actions, action))


def _thinks(request: Request) -> bool:
    """Return whether the model is to think, which it does unless the request says otherwise."""
    asked: Any = None
    if request.dialect == "anthropic-messages":
        thinking = request.fields.get("thinking")
        kind = thinking.get("type") if isinstance(thinking, Mapping) else None
        asked = {"enabled": True, "disabled": False}.get(str(kind))
    elif request.dialect == "openai-chat":
        asked = request.fields.get("enable_thinking")
    if asked is None and request.dialect != "openai-responses":
        asked = request.kwargs.get("enable_thinking")
    return asked if isinstance(asked, bool) else True


def _turns(messages: Messages, reasons: bool) -> Rewrite:
    """Return messages with the keys that the server keeps, without those that have no content."""
    output = [(message, _turn(message, reasons)) for message in messages]
    empty = [message for message, turn in output if turn is None]
    changed = [message for message, turn in output if turn is not None and turn.content != message.content]
    return Rewrite(
        tuple(turn for _, turn in output if turn is not None),
        done("dropped", empty, "no content") + done("converted", changed, "its content becomes one text"),
    )


def _turn(message: Message, reasons: bool) -> Message | None:
    """Return one turn as the server keeps it; None for nothing of it."""
    text = _text(message)
    assistant = has_role(message, "assistant")
    if assistant:
        text = stripped(text)
    calls = message.data.get("tool_calls")
    data: dict[str, Any] = {"role": message.data.get("role"), "content": text.text}
    if has_role(message, "tool"):
        data["tool_call_id"] = str(message.data.get("tool_call_id") or "")
    elif not text and not calls:
        return None
    elif message.data.get("name"):
        data["name"] = message.data["name"]
    if assistant and reasons and not text.text.lstrip().startswith("<think>"):
        reasoning = message.data.get("reasoning_content") or message.data.get("reasoning")
        data |= {"reasoning_content": str(reasoning)} if reasoning else {}
    if assistant and calls:
        data |= {"tool_calls": [_call(call) for call in calls], BOUNDARY_KEY: True}
    return (
        message if message.data == data else rebuilt(Message(data, message.index), text.text, text.pieces())
    )


def _text(message: Message) -> Text:
    """Return a content as one text, with the server's marker for each image."""
    content = message.content
    if not isinstance(content, list):
        return content_text(message, None, "" if content is None else str(content))
    texts = ((number, _part(part)) for number, part in enumerate(content))
    return join((content_text(message, number, text) for number, text in texts if text is not None), "")


def _part(part: Any) -> str | None:
    if isinstance(part, Mapping) and (part.get("type") == "image_url" or "image_url" in part):
        return IMAGE
    if isinstance(part, Mapping) and "text" in part:
        return str(part["text"])
    return part_text(part)


def _call(call: Any) -> dict[str, Any]:
    """Return a tool call without its type; an id that is missing stays so."""
    function = call.get("function")
    named = function if isinstance(function, Mapping) else call
    kept = {
        "function": {"name": str(named.get("name") or "").strip(), "arguments": named.get("arguments", {})}
    }
    return kept | ({"id": str(call["id"])} if call.get("id") else {})


def _join_repeated(messages: Messages) -> Rewrite:
    """Join neighbouring user turns, which the server takes for retries; a repeated one counts once."""
    output: list[Message] = []
    actions: list[Action] = []
    for message in messages:
        earlier = output[-1] if output else None
        if earlier is None or not (_is_user_text(earlier) and _is_user_text(message)):
            output.append(message)
            continue
        before, after = stripped(_text(earlier)), stripped(_text(message))
        if (repeated := _repeatable(before.text)) is not None and repeated == _repeatable(after.text):
            output[-1] = message
            actions += done("dropped", [earlier], "the same as the user turn after it")
            continue
        text = join([text for text in (before, after) if text] or [after], BETWEEN_TEXTS)
        output[-1] = rebuilt(message, text.text, text.pieces())
        actions += done("merged", [earlier, message], "neighbouring user turns are joined")
    return Rewrite(tuple(output), tuple(actions))


def _is_user_text(message: Message) -> bool:
    content = message.content
    parts = content if isinstance(content, list) else []
    return has_role(message, "user") and all(isinstance(part, str) or is_text_part(part) for part in parts)


def _repeatable(text: str) -> str | None:
    key = " ".join(text.split()).lower()
    return key if _LEAST_REPEATED <= len(key) <= _MOST_REPEATED else None


def _later(lead: Messages, rest: Messages) -> Rewrite:
    """Return later system turns as user turns where they stand, without those that have no text."""
    output = list(lead)
    empty: list[Message] = []
    moved: list[Message] = []
    for message in rest:
        if not is_system(message):
            output.append(message)
        elif texts := _texts(message, False):
            moved.append(message)
            user = message.replace(role="user")
            output.append(rebuilt(user, texts[0].text, texts[0].pieces()))
        else:
            empty.append(message)
    noted = done("noted", moved, "becomes a user turn where it stands")
    return Rewrite(tuple(output), done("dropped", empty, "no text") + noted)


def _texts(message: Message, leads: bool) -> list[Text]:
    text = join(part_texts(message), "")
    return [text] if text else []


def _drop_void(messages: Messages) -> Rewrite:
    void = [message for message in messages if is_void(message)]
    kept = tuple(message for message in messages if not is_void(message))
    return Rewrite(kept, done("dropped", void, "an assistant turn without anything in it"))


def _any(messages: Messages) -> Rewrite:
    """Return the messages, or one empty user turn where there are none."""
    if messages:
        return Rewrite(messages)
    empty = Message({"role": "user", "content": ""}, TOP_LEVEL)
    return Rewrite((empty,), (Action("inserted", (), "an empty user turn, as there is no other"),))


def _with_contract(messages: Messages, contract: str) -> Rewrite:
    """Add the tool contract to the first system turn, or put it in front as one."""
    first, *others = messages
    action = Action("inserted", (), "the server's tool contract ends the first system turn")
    if not has_role(first, "system"):
        return Rewrite((Message({"role": "system", "content": contract}, TOP_LEVEL), *messages), (action,))
    text = content_text(first, None, first.content)
    if SENTINEL in text.text:
        return Rewrite(messages)
    body = text.cut(0, len(text.text.rstrip())) if text.text.strip() else None
    whole = (
        stripped(body.wrapped("", f"{BETWEEN_TEXTS}{contract}"))
        if body
        else Text(contract, ((0, first.index),))
    )
    return Rewrite((rebuilt(first, whole.text, whole.pieces()), *others), (action,))


def _with_thinking_closed(prepared: Prepared, template: ChatTemplate) -> Prepared:
    """Return what was prepared without thinking, where the template opens a think block all the same.

    The server closes that block (`_close_disabled_think_generation_prompt`).
    """
    request = prepared.request
    try:
        prompt = template.render([{"role": "user", "content": "u"}], kwargs=request.kwargs)
    except RenderError:
        return prepared
    if not (opened := _OPEN_THINKING.search(prompt)):
        return prepared
    space = prompt[opened.end(1) + len("<think>") :]
    if space not in ("", "\n"):
        return prepared
    closing = "\n\n</think>\n\n".removeprefix(space)
    after = f"{{% if add_generation_prompt %}}{{{{ {json.dumps(closing)} }}}}{{% endif %}}"
    action = Action("kwargs", (), "the think block that the template opens is closed by the server")
    request = request.replace(template=extended(template, request, after=after))
    return replace(prepared, request=request, actions=(*prepared.actions, action))


def _with_retries(prepared: Prepared) -> Prepared:
    """Return what was prepared with the server's attempts after an error of the template.

    After a TypeError it leaves out its chat-template kwargs, after another the tools, too. A request without
    tools becomes plain text then.
    """
    request = prepared.request
    plain = request.replace(kwargs={})
    if request.tools:
        why = "without chat-template kwargs and tools"
        last = Retry(plain.replace(tools=None), Action("retried", (), why))
    else:
        last = Retry(
            plain.replace(template=PLAIN), Action("retried", (), "without the template, as plain text")
        )
    again = Retry(
        plain,
        Action("retried", (), "without chat-template kwargs"),
        kind="TypeError",
        retries=(last,) if request.tools else (),
        final=True,
    )
    return replace(prepared, retries=(again, last))


def _refusal(request: Request, chat: Messages) -> str | None:
    """Return what the server answers instead of rendering, with status 400; None where it renders."""
    if request.dialect == "openai-responses" and (why := _refused_responses(request)):
        return f"Responses API: {why}"
    if not chat:
        return "messages must not be empty"
    for message in chat:
        for call in message.data.get("tool_calls") or ():
            function = call.get("function", {}) if isinstance(call, Mapping) else {}
            if not _is_object(function.get("arguments")):
                return f"assistant tool_call '{function.get('name')}' arguments must be a JSON object"
    return None


def _is_object(arguments: Any) -> bool:
    """Return whether arguments are those of an object; none at all are those of an empty one."""
    if isinstance(arguments, str) and arguments.strip():
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return False
        return isinstance(arguments, dict)
    return not arguments or isinstance(arguments, Mapping)


def _refused_responses(request: Request) -> str | None:
    if unknown := sorted(set(request.fields) - _FIELDS):
        return f"unsupported field(s): {', '.join(unknown)}"
    for field in ("background", "store", "previous_response_id"):
        if request.fields.get(field):
            return f"{field} is not supported"
    hosted = [str(tool.get("type")) for tool in request.tools or () if tool.get("type") not in _CLIENT_TOOLS]
    if hosted:
        return f"hosted tool type(s) unavailable on local MTPLX: {', '.join(hosted)}"
    reasoning = request.fields.get("reasoning")
    if isinstance(reasoning, Mapping):
        if reasoning.get("summary") not in (None, "none", "auto"):
            return "reasoning.summary supports only auto/none"
        effort = reasoning.get("effort")
        if effort is not None and str(effort).strip().lower() not in _EFFORTS:
            return f"reasoning.effort must be one of: {', '.join(_EFFORTS)}"
    if not request.messages:
        return "input must be a non-empty text string or item list"
    called: set[str] = set()
    for item in request.messages:
        kind = str(item.data.get("type") or "message")
        if kind == "function_call":
            called.add(str(item.data.get("call_id")))
        elif kind == "function_call_output" and item.data.get("call_id") not in called:
            return "function_call_output continuation requires the matching function_call earlier"
        elif kind not in ("message", "function_call_output"):
            return f"input[{item.index}].type={kind!r} is not supported"
        texts = item.data.get("output" if kind == "function_call_output" else "content")
        for part in texts if isinstance(texts, list) else ():
            if not isinstance(part, Mapping) or part.get("type") not in _TEXTS:
                return f"input[{item.index}]: only text content is supported"
    return None


def _join_instructions(messages: Messages) -> Rewrite:
    """Join the instructions and a system item that comes first, which the server does before all else."""
    if len(messages) < 2 or messages[0].index != TOP_LEVEL or not is_system(messages[1]):
        return Rewrite(messages)
    first, second, *others = messages
    text = join((_text(first), _text(second)), BETWEEN_TEXTS)
    actions = done("merged", [first, second], "the instructions and the system turn after them are joined")
    return Rewrite((rebuilt(first, text.text, text.pieces()), *others), actions)


def _system_text(request: Request) -> Any:
    """Return an Anthropic top-level system text as one, without the lines of billing headers."""
    if request.dialect != "anthropic-messages":
        return request.system
    system = Message({"role": "system", "content": request.system}, TOP_LEVEL)
    blocks = (_without_billing(text.text) for text in part_texts(system))
    return BETWEEN_TEXTS.join(block for block in blocks if block)


def _without_billing(text: str) -> str:
    lines = (line for line in text.splitlines() if not line.strip().lower().startswith(BILLING_HEADER))
    return "\n".join(lines).strip()


KINDS = (
    PolicyKind(
        "mtplx",
        "MTPLX: later system turns become user turns; version=2.11 is the strict hoist of issue 477",
        lambda name, options: Mtplx(
            name, options.get("route"), options["version"], options["tool_prompt"], options["family"]
        ),
        source="release 2.12.2; youssofal/MTPLX#477 for version=2.11",
        date="2026-10",
        evidence={"messages": "run", "version=2.11": "reported"},
        cache="mtplx",
        drift="a later system turn changes at most the end of the user turn before it; the tool contract "
        "changes with the day; with version=2.11 each later one lengthens the first system message",
        options={
            "route": ROUTES,
            "version": PolicyOption((RELEASE, HOISTING), RELEASE),
            "tool_prompt": PolicyOption(("hybrid", "native", "compact"), "hybrid"),
            "family": PolicyOption(("other", _QWEN38), "other"),
        },
        suite="local",
    ),
)
