"""llama.cpp: nothing is done for later system turns; its server renders with its own engine and defaults.

`developer` becomes `system` unless the template has `<|channel|>`; where the template does not take a system
role, the first system turn's text goes before the next turn's. Contents become what the template takes:
texts, lists of parts, or either as it was sent. Arguments of tool calls become dicts where it takes those. A
trailing assistant turn is continued. Four variables for the reasoning of earlier turns are set. An error of
the template is the answer: HTTP 500 (ggml-org/llama.cpp#27367). Chat, messages and responses all end here
(`common/chat.cpp` and `tools/server/server-common.cpp` of ggml-org/llama.cpp at b11434; `version=b10775` has
that build's rule for lists of parts, the rest is the newest). See docs/servers.md, section 9.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from ...conversation import Message, Piece, Request
from ...errors import RenderError
from ...templates.template import ChatTemplate
from ...text import common_prefix
from ..api.routes import body_effort, with_kwargs
from ..base import Action, Messages, Prepared, Rewrite
from ..kind import ON, PassesOn, PolicyKind, PolicyOption, ReuseReports
from ..rewrite.own_template import extended
from ..rewrite.part_texts import as_system, joined
from ..rewrite.reasoning import template_text
from ..rewrite.system_turns import each_changed, has_role, indices, keep
from ..rewrite.texts import Text, content_text, cover, flat_text, join, part_text, rebuilt
from ..rewrite.tool_arguments import with_calls
from .llama_cpp_routes import MEDIA, as_llama_chat
from .llama_cpp_template import (
    CHANNEL,
    GEMMA,
    NEWER_GEMMA,
    OLDER,
    Capabilities,
    Family,
    Thinking,
    capabilities,
    family_of,
    thinking_of,
)

NEWEST = "b11434"
BETWEEN = "\n"
BETWEEN_CONTINUED = "\n\n"
MEDIA_MARKER = "<__media__>"
#: Words of templates that get reasoning as `thinking`, too.
_WITH_THINKING = (CHANNEL, "<|tool_list_start|>", "List of tools: [")
#: Tests that templates make of contents and that the server takes out of them, with a word to know them by.
_REMOVED_TESTS = (
    (
        CHANNEL,
        '{%- if "<|channel|>analysis<|message|>" in message.content or '
        '"<|channel|>final<|message|>" in message.content %}',
    ),
    (
        "[TOOL_CALLS]",
        "{%- if (message['content'] is none or message['content'] == '' or message['content']|length == 0) "
        "and (message['tool_calls'] is not defined or message['tool_calls'] is none or "
        "message['tool_calls']|length == 0) %}",
    ),
)
#: The turn to be continued is kept from the template.
_BEFORE = "{% set continued_turn = messages[-1] %}\n{% set messages = messages[:-1] %}\n"


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """llama.cpp's preparation of a request.

    Attributes:
        name: the policy as the person named it.
        preserves_reasoning: the server's flag, on by default; `--no-reasoning-preserve` turns it off.
        version: the build, `NEWEST` or `OLDER`.
        prefills: the server's flag, on by default; `--no-prefill-assistant` turns it off.
        known: what was found out so far, by template.
    """

    name: str
    preserves_reasoning: bool = True
    version: str = NEWEST
    prefills: bool = True
    known: dict[Hashable, tuple[Capabilities, Thinking]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def prepare(self, request: Request, template: ChatTemplate) -> Prepared:
        """Return the request as this server's engine gets it."""
        text = template_text(template)
        can, thinking = self._found(template, text)
        start = self._with_variables(as_llama_chat(request), request, template, thinking)
        continues = self._continues(start, request)
        if (why := _refusal(start.request.messages, request, continues)) is not None:
            start = start.refused(400, why)
        continues = continues and start.error is None
        last = start.request.messages[-1:] if continues else ()
        first = start.request.messages[: len(start.request.messages) - len(last)]
        start = replace(start, request=start.request.replace(messages=first), profile="lenient")
        start = start.then(lambda messages: _fit_contents(messages, can))
        if CHANNEL not in text:
            start = start.then(as_system)
        if can.system_role:
            start = start.then(lambda messages: keep(messages, "passed on to the template"))
        else:
            start = _without_system_role(start)
        if can.object_arguments:
            start = _with_parsed_arguments(start)
        if any(word in text for word in _WITH_THINKING):
            start = start.then(lambda messages: _with_thinking(messages, CHANNEL in text))
        if GEMMA in text and NEWER_GEMMA not in text:
            start = start.then(_merged_rounds)
        start = _without_tests(start, template)
        if continues:
            return _continued(start, last[0], template, thinking)
        return _with_turn_opened(start, template) if GEMMA in text else start

    def _found(self, template: ChatTemplate, text: str) -> tuple[Capabilities, Thinking]:
        key = (id(template), text)
        if key not in self.known:
            self.known[key] = capabilities(template, self.version), thinking_of(template)
        return self.known[key]

    def _continues(self, start: Prepared, request: Request) -> bool:
        """Return whether the last turn is continued, as the client asks or since an assistant is last."""
        asked = request.partial or request.fields.get("continue_final_message") in (
            "content",
            "reasoning_content",
        )
        last = start.request.messages[-1:]
        return bool(last) and (asked or (self.prefills and has_role(last[0], "assistant")))

    def _with_variables(
        self, prepared: Prepared, request: Request, template: ChatTemplate, thinking: Thinking
    ) -> Prepared:
        responses = request.dialect == "openai-responses"
        effort = body_effort(request) if responses else request.fields.get("reasoning_effort")
        effort = None if request.dialect == "anthropic-messages" else effort
        kwargs = dict(prepared.request.kwargs)
        if isinstance(effort, str) and effort:
            kwargs.pop("reasoning_effort", None)
            prepared = replace(prepared, request=prepared.request.replace(kwargs=kwargs))
            if effort == "none":
                prepared = with_kwargs(prepared, {"enable_thinking": False}, "the request's effort is none")
            else:
                prepared = with_kwargs(prepared, {"reasoning_effort": effort})
        effort = prepared.request.kwargs.get("reasoning_effort")
        if isinstance(effort, str) and effort:
            prepared = with_kwargs(prepared, {"reasoning_strength": effort}, "the same")
        if request.fields.get("add_generation_prompt") is False:
            prepared = with_kwargs(prepared, {"add_generation_prompt": False})
        keeps = prepared.request.kwargs.get("preserve_reasoning", self.preserves_reasoning)
        if isinstance(keeps, bool):
            flag = "--reasoning-preserve" if keeps else "--no-reasoning-preserve"
            prepared = with_kwargs(prepared, reasoning_variables(keeps), f"what {flag} stands for")
            prepared = with_kwargs(prepared, {"preserve_reasoning": keeps}, "the flag itself")
        now = request.now or getattr(template, "now", None) or datetime.now()
        dates = {"datetime": now.strftime("%b %d %Y"), "date_string": now.strftime("%d %b %Y")}
        why = "always defined, and true where the template knows reasoning"
        prepared = with_kwargs(prepared, {"enable_thinking": thinking.known}, why)
        return with_kwargs(prepared, dates, "today, always defined", values=False)


def _refusal(messages: Messages, request: Request, continues: bool) -> str | None:
    """Return why the server refuses a turn to be continued, or a variable of the wrong type."""
    if isinstance(request.kwargs.get("enable_thinking"), str):
        return 'invalid type for "enable_thinking" (expected boolean, got string)'
    if not continues:
        return None
    last = messages[-1]
    asked = request.partial or bool(request.fields.get("continue_final_message"))
    if asked and request.fields.get("add_generation_prompt") is not False:
        return "Cannot set both add_generation_prompt and continue_final_message to true."
    if not asked and has_role(messages[-2] if len(messages) > 1 else None, "assistant"):
        return "Cannot have 2 or more assistant messages at the end of the list."
    if has_role(last, "assistant") and last.data.get("tool_calls"):
        return "Cannot continue an assistant message that contains tool calls."
    return None


def reasoning_variables(keeps: bool) -> dict[str, bool]:
    """Return the four variables that llama.cpp sets for its flag `--reasoning-preserve`."""
    return {
        "preserve_thinking": keeps,
        "clear_thinking": not keeps,
        "truncate_history_thinking": not keeps,
        "drop_thinking": not keeps,
    }


def _fit_contents(messages: Messages, can: Capabilities) -> Rewrite:
    """Give contents the form that the template takes."""
    why = "its content takes the form that the template accepts"
    return each_changed(messages, lambda message: _fitted(message, can), "converted", why)


def _fitted(message: Message, can: Capabilities) -> Message:
    content = message.content
    texts = can.text_content and not can.typed_content
    if isinstance(content, list) and (texts or any(part.get("type") in MEDIA for part in content)):
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
        if text is None and not (isinstance(part, dict) and part.get("type") in MEDIA):
            continue
        piece = content_text(message, number, MEDIA_MARKER if text is None else text)
        new_line = text is not None and not after_marker and any(texts)
        texts.append(piece.wrapped(BETWEEN, "") if new_line else piece)
        after_marker = text is None
    return joined(texts, "") if texts else content_text(message, None, "")


def _with_parsed_arguments(start: Prepared) -> Prepared:
    """Parse the arguments of tool calls from JSON, whatever it is; the server fails on any other text."""
    failed: list[str] = []

    def parsed(call: Any) -> Any:
        text = call["function"]["arguments"]
        try:
            return {**call, "function": {**call["function"], "arguments": json.loads(text)}}
        except (ValueError, RecursionError):
            failed.append(text)
            return call

    why = "the arguments of its tool calls are parsed from JSON"
    after = start.then(
        lambda given: each_changed(given, lambda message: with_calls(message, parsed), "converted", why)
    )
    return after.refused(500, "Failed to parse tool call arguments as JSON") if failed else after


def _with_thinking(messages: Messages, harmony: bool) -> Rewrite:
    """Copy reasoning to the field `thinking`, from which some templates write it.

    In a harmony template a message that calls tools loses its content then: the template takes either.
    """
    why = "its reasoning goes into the field `thinking`"
    why += ", in place of a content where it calls tools" if harmony else ""
    return each_changed(messages, lambda message: _thinking(message, harmony), "converted", why)


def _thinking(message: Message, harmony: bool) -> Message:
    reasoning = message.data.get("reasoning_content")
    if not isinstance(reasoning, str):
        return message
    if not harmony or not message.data.get("tool_calls"):
        return message.replace(thinking=reasoning)
    data = {key: value for key, value in message.data.items() if key != "content"}
    return dataclasses.replace(message, data={**data, "thinking": reasoning}, pieces=())


def _without_tests(start: Prepared, template: ChatTemplate) -> Prepared:
    """Return a request whose template does not refuse some contents, as the server patches it."""
    source = extended(template, start.request)
    if source is None:
        return start
    patched = source
    for word, test in _REMOVED_TESTS:
        if word in source:
            patched = patched.replace(test, "{%- if false %}")
    if patched == source:
        return start
    return replace(start, request=start.request.replace(template=patched))


def _prompt(start: Prepared, template: ChatTemplate, *, prompted: bool) -> str | None:
    """Return what the template makes of the messages so far; None where it raises."""
    try:
        return template.render_request(start.request, add_generation_prompt=prompted, profile="lenient")
    except RenderError:
        return None


def _continued(start: Prepared, last: Message, template: ChatTemplate, thinking: Thinking) -> Prepared:
    """Return a request that ends within the last turn, which the server writes itself.

    It has the template write the others without a generation prompt, and adds the beginning of an assistant
    turn with what it knows of the family, or found out of the template.
    """
    action = Action("converted", indices((last,)), "the last turn is continued: the server writes it itself")
    family = family_of(template_text(template)) or Family((), None, thinking.start, thinking.end)
    reasoning = last.data.get("reasoning_content") or ""
    written = last.content if isinstance(last.content, str) else _one_text(last.content)
    behind = ""
    if written or reasoning or last.content:
        body = _prompt(start, template, prompted=False) or ""
        opening = family.opening
        if opening is None:
            whole = _prompt(start, template, prompted=True) or ""
            opening = whole[common_prefix(whole, body) :]
            at = opening.find(family.start) if family.start and not family.words else -1
            opening = opening if at < 0 else opening[:at]
        elif family.behind and not body.endswith(family.behind):
            opening = ""
        ends = bool(last.content)
        bare = family.bare_end and not reasoning
        before = opening + (family.bare_end if bare else family.start)
        between = family.end if ends and not bare and family.start else ""
        behind = _written(before) + (
            "{{ continued_turn.reasoning_content }}" if family.start and not bare else ""
        )
        behind += _written(between) + ("{{ continued_turn.content }}" if ends else "")
    source = extended(template, start.request, _BEFORE, behind)
    text = rebuilt(last, written, ()) if isinstance(last.content, list) else last
    turn = text.replace(reasoning_content=reasoning)
    kwargs = {**start.request.kwargs, "add_generation_prompt": False}
    request = start.request.replace(
        messages=(*start.request.messages, turn), template=source, kwargs=kwargs, partial=False
    )
    return replace(start, request=request, actions=(*start.actions, action))


def _one_text(parts: list[Any]) -> str:
    text = ""
    for part in parts:
        text += (BETWEEN_CONTINUED if text else "") + (part_text(part) or "")
    return text


def _written(text: str) -> str:
    """Return Jinja that writes a text."""
    return f"{{{{ {json.dumps(text)} }}}}" if text else ""


def _merged_rounds(messages: Messages) -> Rewrite:
    """Make one turn of each call, its results and the answer to them, as older templates of Gemma 4 want it.

    What the calling turn says beside its calls is lost.
    """
    output: list[Message] = []
    merged: list[Action] = []
    position = 0
    while position < len(messages):
        first = messages[position]
        position += 1
        if not (has_role(first, "assistant") and first.data.get("tool_calls")):
            output.append(first)
            continue
        turn = {key: value for key, value in first.data.items() if key != "content"}
        results: list[Message] = []
        while position < len(messages) and has_role(messages[position], "tool"):
            results.append(messages[position])
            position += 1
        if results:
            turn["tool_responses"] = [_response(first, each, n) for n, each in enumerate(results)]
        answer = messages[position] if position < len(messages) else None
        pieces: tuple[Piece, ...] = ()
        parts = [first, *results]
        calls = answer is None or answer.data.get("tool_calls")
        if answer is not None and has_role(answer, "assistant") and answer.content and not calls:
            position += 1
            turn["content"], pieces = answer.content, cover(answer)
            parts.append(answer)
        output.append(Message(turn, first.index, pieces))
        merged.append(Action("merged", indices(parts), "a call, its results and the answer become one turn"))
    return Rewrite(tuple(output), tuple(merged))


def _response(call: Message, result: Message, number: int) -> dict[str, Any]:
    calls = call.data["tool_calls"]
    name = calls[number]["function"].get("name") if number < len(calls) else ""
    response = result.content
    if isinstance(response, str):
        with contextlib.suppress(ValueError, RecursionError):
            response = json.loads(response)
    return {"name": name or result.data.get("tool_call_id", ""), "response": response}


def _with_turn_opened(start: Prepared, template: ChatTemplate) -> Prepared:
    """Return a request for Gemma 4's template, which the server helps out where it opens no turn."""
    prompt = _prompt(start, template, prompted=True)
    if prompt is None or not prompt.endswith("<turn|>\n"):
        return start
    after = "{% if add_generation_prompt %}" + _written("<|turn>model\n") + "{% endif %}"
    return replace(
        start, request=start.request.replace(template=extended(template, start.request, after=after))
    )


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
        kept = start.then(lambda messages: keep(messages, "the server fails on it"))
        return kept.refused(400, "type must be string, but is array")
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
        lambda name, options: LlamaCpp(
            name,
            options["reasoning_preserve"] == "on",
            options["version"],
            options["prefill_assistant"] == "on",
        ),
        source="ggml-org/llama.cpp common/chat.cpp, common/jinja, common/parsers, tools/server at b11434",
        date="2026-11",
        evidence={"messages": "run", "variables for reasoning": "run"},
        cache="llama.cpp",
        drift="The rules change nothing earlier, except that the date variables change at midnight; the rest "
        "is what the template makes of later system turns.",
        options={
            "reasoning_preserve": ON,
            "prefill_assistant": ON,
            "slots": PolicyOption(("1", "2", "4", "8"), "4"),
            "version": PolicyOption((NEWEST, OLDER), NEWEST),
        },
        cache_options=("slots",),
        aliases=("llama-server",),
        # The flag: ggml-org/llama.cpp, common/arg.cpp.
        kwargs_setting="llama-server … --chat-template-kwargs '{}'",
        checks=(PassesOn("llama.cpp", 5, "HTTP 500"),),
        # `--cache-reuse N`: ggml-org/llama.cpp, tools/server/README.md.
        shifts_states=True,
        reuse_reports=ReuseReports(log=True),
        suite="engines",
    ),
)
