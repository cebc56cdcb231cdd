"""What llama.cpp's server finds out about a template by running it, and what it knows of some families.

The server watches which values a template reads; here it is found by what comes out, which is the same for
all but templates that read a text and do not write it (common/jinja/caps.cpp, common/chat-diff-analyzer.cpp
and common/parsers of ggml-org/llama.cpp at b11434).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...conversation import Message, Request
from ...errors import RenderError
from ...templates.rendering import Profile
from ...templates.template import ChatTemplate
from ..rewrite.reasoning import template_text

CHANNEL = "<|channel|>"
GEMMA = "'<|tool_call>call:'"
NEWER_GEMMA = "{#- OpenAI Chat Completions:"
#: The build whose test of contents asked for a text alone.
OLDER = "b10775"
_MARKER = "zqllamazq"
_THOUGHT = "zqthoughtzq"
_QUOTED_KEY = re.compile(r"""['"]text['"]\s*:""")
_TESTS_STRING = re.compile(r"is\s+(?:not\s+)?string\b")
_CALL_ID = "call00001"
_TOOL = {
    "type": "function",
    "function": {
        "name": "tool1",
        "description": "Tool description",
        "parameters": {
            "type": "object",
            "properties": {"arg": {"type": "string", "description": "Arg description"}},
            "required": ["arg"],
        },
    },
}
_TAG = r"(?:<[^>]*>|\[[^\]]*\])"
_WRAPPED = re.compile(rf"({_TAG}\s*){_THOUGHT}(\s*{_TAG}\s*)")
_ENDED = re.compile(rf"{_THOUGHT}\s*({_TAG}\s*)?")
_SEGMENT = re.compile(rf"{_TAG}|[^<\[]+|.", re.DOTALL)
_ANCHOR = 64


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a template takes.

    Attributes:
        system_role: the text of a first system turn comes out.
        text_content: a content that is a text comes out.
        typed_content: a content that is a list of parts comes out.
        object_arguments: arguments of a tool call that are a dict come out.
    """

    system_role: bool
    text_content: bool
    typed_content: bool
    object_arguments: bool


def capabilities(template: ChatTemplate, version: str = "") -> Capabilities:
    """Find out what a template takes by rendering a few short conversations.

    Args:
        template: the template.
        version: `OLDER` for the rule of that build, by which a template that takes texts takes no lists.
    """
    parts = [{"type": "text", "text": _MARKER}]
    text = _MARKER in _rendered(template, [_user(_MARKER)])
    listed = _rendered(template, [_user(parts)])
    typed = _MARKER in listed and not _QUOTED_KEY.search(listed)
    if text and typed:
        asks = _TESTS_STRING.search(template_text(template)) is not None
        typed = version != OLDER and asks and bool(_rendered(template, [_user([])], empty=" "))

    def turn(role: str, words: Any, **keys: Any) -> dict[str, Any]:
        return {"role": role, "content": words, **keys}

    call = {"name": "tool1", "arguments": {"arg": _MARKER}}
    loop = [
        turn("user", "User message"),
        turn("assistant", "", tool_calls=[{"id": _CALL_ID, "type": "function", "function": call}]),
        turn("tool", "Tool response", tool_call_id=_CALL_ID),
        turn("assistant", "The tool response was 'tool response'"),
        turn("user", "User message"),
    ]
    return Capabilities(
        system_role=_reads_marker(template, [turn("system", parts), turn("user", [])])
        if typed and not text
        else _reads_marker(template, [turn("system", _MARKER), turn("user", "User message")]),
        text_content=text,
        typed_content=typed,
        object_arguments=_reads_marker(template, loop, (_TOOL,)),
    )


def _reads_marker(
    template: ChatTemplate, messages: list[dict[str, Any]], tools: tuple[Mapping[str, Any], ...] | None = None
) -> bool:
    """Return whether a template reads the marker, also where the server's engine loses it later."""
    profiles: tuple[Profile, ...] = ("lenient", "raw")
    return any(_MARKER in _rendered(template, messages, tools=tools, profile=each) for each in profiles)


def _user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _rendered(
    template: ChatTemplate,
    messages: list[dict[str, Any]],
    *,
    tools: tuple[Mapping[str, Any], ...] | None = None,
    prompted: bool = True,
    empty: str = "",
    profile: Profile = "lenient",
    **kwargs: Any,
) -> str:
    """Return a prompt, or an empty text where the template raises; `empty` in place of an empty prompt."""
    turns = tuple(Message(data, index) for index, data in enumerate(messages))
    request = Request(turns, tools, kwargs)
    try:
        return template.render_request(request, add_generation_prompt=prompted, profile=profile) or empty
    except RenderError:
        return ""


@dataclass(frozen=True, slots=True)
class Thinking:
    """How a template encloses reasoning.

    Attributes:
        known: whether it has reasoning at all; `enable_thinking` is true by default then.
        start: what stands before reasoning; empty where that was not found.
        end: what stands behind it.
    """

    known: bool = False
    start: str = ""
    end: str = ""


def thinking_of(template: ChatTemplate) -> Thinking:
    """Return how a template encloses reasoning, found out by differences between prompts."""
    text = template_text(template)
    if (family := family_of(text)) is not None:
        return Thinking(family.thinks, family.start, family.end)
    if all(word in text for word in ("<SPECIAL_10>", "<SPECIAL_11>", "<SPECIAL_12>", "<TOOL_RESPONSE>")):
        return Thinking(True, "<think>\n", "</think>")
    found = _scoped(template, _switched(template, _written(template)))
    if "Write your thoughts between <think></think> and write your response between <response>" in text:
        return Thinking(True, "<think>", "</think>")
    splits = "content.split('</think>')" in text and "reasoning_content" not in text
    if splits and "<SPECIAL_12>" not in text and not found.known:
        return Thinking(True, "<think>", "</think>")
    if "laguna_glm_thinking" in text:
        return Thinking(found.known, found.start.strip(), found.end.strip())
    return found


def _written(template: ChatTemplate) -> Thinking:
    """Look at the reasoning of a last turn as it is written."""
    turn = {"role": "assistant", "content": _MARKER, "reasoning_content": _THOUGHT}
    prompt = _rendered(template, [_user("u"), turn], prompted=False, enable_thinking=True)
    return _enclosed(prompt)


def _enclosed(prompt: str) -> Thinking:
    if wrapped := _WRAPPED.search(prompt):
        return Thinking(True, wrapped[1], wrapped[2])
    ended = _ENDED.search(prompt)
    return Thinking(True, "", ended[1]) if ended and ended[1] else Thinking()


def _switched(template: ChatTemplate, found: Thinking) -> Thinking:
    """Look at what the template changes in its generation prompt where thinking is off."""
    off = _rendered(template, [_user("u")], enable_thinking=False)
    on = _rendered(template, [_user("u")], enable_thinking=True)
    if not off or not on or off == on:
        return found
    start, end = found.start, found.end
    if on.startswith(off):
        opening = on[len(off) :]
        known = start or not opening.strip() or not on.endswith(opening.strip())
        return found if known else Thinking(True, opening, end)
    if off.startswith(on):
        closing = off[len(on) :]
        if end or not closing.strip() or not off.endswith(closing.strip()):
            return found
        segments = [each for each in _SEGMENT.findall(off) if each.strip()]
        before = segments[-2] if len(segments) > 1 and segments[-1] == closing.strip() else ""
        return Thinking(True, before if re.fullmatch(_TAG, before) else start, closing)
    for base, longer in ((on, off), (off, on)):
        at = longer.rfind(base[-_ANCHOR:])
        extra = longer[at + len(base[-_ANCHOR:]) :].strip() if at >= 0 else ""
        tags = [each for each in _SEGMENT.findall(extra) if each.strip()]
        if len(tags) == 2 and all(re.fullmatch(_TAG, each) for each in tags):
            return Thinking(True, start or tags[0], end or tags[1])
    return found


def _scoped(template: ChatTemplate, found: Thinking) -> Thinking:
    """Look at templates that write reasoning only beside calls."""
    calls = [{"id": _CALL_ID, "type": "function", "function": {"name": "tool1", "arguments": {"arg": "v"}}}]
    turn = {"role": "assistant", "content": _MARKER, "reasoning_content": _THOUGHT}
    calling = {"role": "assistant", "content": None, "reasoning_content": _THOUGHT, "tool_calls": calls}

    def prompt(last: dict[str, Any]) -> str:
        return _rendered(template, [_user("u"), last], tools=(_TOOL,), prompted=False, enable_thinking=True)

    plain, beside = prompt(turn), prompt(calling)
    if not plain or _THOUGHT in plain or _THOUGHT not in beside:
        return found
    scoped = _enclosed(beside)
    return scoped if scoped.known else Thinking(False, found.start, found.end)


@dataclass(frozen=True, slots=True)
class Family:
    """A family of templates that the server knows by words in them.

    Attributes:
        words: what stands in the template.
        opening: what begins the assistant turn that is continued; None for the template's generation prompt.
        start: what stands before its reasoning.
        end: what stands between its reasoning and its content.
        absent: what does not stand in the template.
        thinks: whether the model thinks.
        bare_end: what stands before a content without reasoning, in place of `start` and `end`.
        behind: what the prompt must end with for the opening to be written.
    """

    words: tuple[str, ...]
    opening: str | None = None
    start: str = ""
    end: str = ""
    absent: tuple[str, ...] = ()
    thinks: bool = True
    bare_end: str = ""
    behind: str = ""


_IM = "<|im_start|>assistant\n"
_HARMONY_END = "<|end|><|start|>assistant<|channel|>final<|message|>"
#: In the order in which the server tries them (`common_chat_try_specialized_template`).
_FAMILIES = (
    Family(("[SYSTEM_PROMPT]", "[TOOL_CALLS]", "[ARGS]"), "", "[THINK]", "[/THINK]", ("[CALL_ID]",)),
    Family((CHANNEL,), "<|start|>assistant", "<|channel|>analysis<|message|>", _HARMONY_END),
    Family(
        ("<atem:function_calls>", "<|eom|>"),
        "<|start|>assistant",
        " to=self<|message|>",
        "<|eom|><|start|>assistant to=user<|message|>",
    ),
    Family(
        (">>>all", ">>>${recipient}"),
        "<|start_header_id|>assistant<|end_header_id|>\n\n>>>all\n",
        thinks=False,
    ),
    Family(
        ("<|tool_calls_section_begin|>", "<|tool_call_begin|>"),
        "<|im_assistant|>assistant<|im_middle|>",
        "<think>",
        "</think>",
    ),
    Family(
        ("<|open|>", "<|close|>", "<|end_of_msg|>"),
        '<|open|>message role="assistant"<|sep|>',
        "<|open|>think<|sep|>",
        "<|close|>think<|sep|><|open|>response<|sep|>",
    ),
    Family(("<role>ASSISTANT</role>", "<arg_key>"), "<role>ASSISTANT</role>\n", "<think>", "</think>"),
    Family(
        ("<|START_TEXT|>", "<|START_ACTION|>"),
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
        "<|START_THINKING|>",
        "<|END_THINKING|><|START_TEXT|>",
    ),
    Family(("<|tool_list_start|>", "<|tool_list_end|>"), _IM, "<think>", "</think>"),
    Family(("List of tools: [",), _IM, "<think>", "</think>", ("<|tool_list_start|>",)),
    Family(
        ("<|role_sep|>", "<|message_sep|>"),
        "assistant<|role_sep|>\n",
        absent=("<|function_call|>",),
        thinks=False,
    ),
    Family(("]<]minimax[>[", "<tool_call>", "<invoke name="), None, "<mm:think>", "</mm:think>"),
    Family(("dsml_token", "DSML", "function_calls"), "<｜Assistant｜>", "<think>", "</think>"),
    Family(
        ("dsml_token", "DSML", "tool_calls"), "<｜Assistant｜>", "<think>", "</think>", bare_end="</think>"
    ),
    Family((GEMMA,), "<|turn>model\n", "<|channel>thought\n", "<channel|>", behind="<turn|>\n"),
    Family(
        ("Tool usage guidelines:", '<function name="', '<param name="'),
        _IM,
        "<think>\n",
        "\n</think>\n\n",
    ),
)
_CODER = ("<tool_call>", "<function=", "<parameter=")
_CODER_ABSENT = "'<tool_call><function=' ~ tool_call.name ~ '>'"


def family_of(text: str) -> Family | None:
    """Return the family that a template belongs to; None for one that the server analyses."""
    for family in _FAMILIES:
        if all(word in text for word in family.words) and not any(word in text for word in family.absent):
            return family
    if all(word in text for word in _CODER) and _CODER_ABSENT not in text:
        if "<think>" in text:
            return Family(_CODER, _IM, "<think>\n", "\n</think>\n\n")
        return Family(_CODER, _IM, thinks=False)
    return None
