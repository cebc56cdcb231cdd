"""Further checks of a template, beside its system turns and its reasoning: each renders, and compares.

One function per rule of findings.py; each takes the template's prompts and returns its findings.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from ..errors import RenderError, RenderLimit
from ..findings import Finding, finding
from ..text import common_prefix
from .mid_system import Prompts

#: Two times that differ in every part of a date and of a time of day.
_TIMES = (datetime(2001, 2, 3, 4, 5, 6), datetime(2038, 11, 29, 17, 48, 59))
_SHORT = ("leading", "user")
_LIST_NOTATION = "{'type': 'text'"
_IN_PARTS = {
    "system": ("leading/parts", "user"),
    "user": ("user/parts",),
    "assistant": ("user", "assistant/parts"),
    "tool": ("user", "call", "result-1/parts"),
}


def check_template(prompts: Prompts) -> Iterator[Finding]:
    """Yield the findings of all checks."""
    prompts.render_plain(
        [
            *((conversation, role == "tool") for role, conversation in _IN_PARTS.items()),
            *((("user", calls, "result-1"), True) for calls in ("call", "call/text")),
        ]
    )
    for check in (clock, string_arguments, parts_lists):
        yield from check(prompts)


def clock(prompts: Prompts) -> Iterator[Finding]:
    """Look for a date or time in the prompt: rule `template-clock`."""
    if not any("strftime_now" in source.text for source in prompts.template.sources.values()):
        return
    early, late = (Prompts(prompts.template, prompts.kwargs, time) for time in _TIMES)
    for tools in (False, True):
        one, other = early.prompt(_SHORT, tools), late.prompt(_SHORT, tools)
        if isinstance(one, str) and isinstance(other, str) and one != other:
            shared = common_prefix(one, other)
            message = f"the date or time of the render is at character {shared:,} of the prompt"
            line = late.line_at(_SHORT, tools, min(shared, len(other) - 1))
            yield finding("template-clock", message + (" when tools are given" if tools else ""), line=line)
            return


def string_arguments(prompts: Prompts) -> Iterator[Finding]:
    """Look for a raise on arguments as a JSON string: rule `string-arguments-raise`."""
    if isinstance(prompts.prompt(("user", "call", "result-1"), True), RenderError):
        return
    error = prompts.prompt(("user", "call/text", "result-1"), True)
    if isinstance(error, RenderError) and not isinstance(error, RenderLimit):
        message = f"a tool call whose arguments are a JSON string raises {error}"
        yield finding("string-arguments-raise", message, line=error.line)


def parts_lists(prompts: Prompts) -> Iterator[Finding]:
    """Look for a content list in Python's notation: rule `parts-list-repr`."""
    lines: dict[str, int | None] = {}
    for role, conversation in _IN_PARTS.items():
        prompt = prompts.prompt(conversation, role == "tool")
        if not isinstance(prompt, RenderError) and _LIST_NOTATION in prompt:
            lines[role] = prompts.line_at(conversation, role == "tool", prompt.index(_LIST_NOTATION))
    if lines:
        message = f"a content list is printed as {_LIST_NOTATION}, …}} in turns of role {', '.join(lines)}"
        yield finding("parts-list-repr", message, line=next(iter(lines.values())))
