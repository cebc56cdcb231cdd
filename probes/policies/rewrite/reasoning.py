"""Reasoning of earlier assistant turns: oMLX hands it to the template as a field, or writes it into the text.

Which of the two depends on the model, and for most models on whether the word `preserve_thinking` stands in
the chat template (docs/servers.md, section 1; jundot/omlx, omlx/api/utils.py, omlx/api/thinking.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from ...conversation import Message
from ...errors import RenderError
from ...templates.template import ChatTemplate
from .texts import Text, flat_text, join

#: Model types that get the field whatever their template says, and the version that knows them first.
NATIVE_TYPES = {
    "minimax_m3": "0.5.3",
    "minimax_m3_vl": "0.5.3",
    "inkling": "0.5.3",
    "inkling_mm_model": "0.5.3",
    "muse_glimmer": "sept",
    "k2_horizon": "latest",
    "deepseek_v4": "latest",
}
#: The versions of oMLX that are told apart, oldest first.
VERSIONS = ("0.5.3", "sept", "latest")

_BLOCK = re.compile(r"<(?:mm:)?think>(.*?)</(?:mm:)?think>", re.DOTALL)
_OPENING = re.compile(r"<(?:mm:)?think>")
_CLOSING = re.compile(r"</(?:mm:)?think>")
_EFFORTS = {
    "off": "low",
    "none": "low",
    "minimal": "low",
    "low": None,
    "moderate": "medium",
    "medium": "high",
    "high": "xhigh",
    "xhigh": "max",
    "max": "xhigh",
    "maximum": "max",
    "ultra": "max",
}


def template_text(template: ChatTemplate | None) -> str:
    """Return the source of the template that is used without tools; an empty text where there is none."""
    try:
        return template.text if template is not None else ""
    except RenderError:  # named templates, none of them the default
        return ""


def detects_preserve_thinking(template: ChatTemplate | None) -> bool:
    """Return whether oMLX takes the model for one that keeps its reasoning: the word alone decides.

    A comment is enough, and other names for the same variable (`clear_thinking`, `drop_thinking`) are not
    seen.
    """
    return "preserve_thinking" in template_text(template)


def is_native(*, version: str, model_type: str | None, model_name: str, detected: bool) -> bool:
    """Return whether reasoning travels as a field instead of within the text.

    Args:
        version: one of `VERSIONS`.
        model_type: `model_type` of the model's config, if known.
        model_name: what the server calls the model.
        detected: what `detects_preserve_thinking` found.
    """
    name = model_name.lower()
    if detected or ("minimax" in name and "m3" in name):
        return True
    if model_type is not None and model_type.startswith("deepseek_v4"):
        model_type = "deepseek_v4"
    since = NATIVE_TYPES.get(model_type or "")
    return since is not None and VERSIONS.index(since) <= VERSIONS.index(version)


def with_reasoning(message: Message, native: bool) -> tuple[Text | None, str | None]:
    """Return an assistant turn's text as the server rebuilds it, and the reasoning that stays a field.

    The text is None where the content is left as it is. Reasoning is read from `reasoning_content` only.
    """
    reasoning = message.data.get("reasoning_content")
    if isinstance(reasoning, str) and reasoning:
        text = flat_text(message)
        if native:
            return text, reasoning
        block = Text(f"<think>\n{reasoning}\n</think>\n\n", ((0, message.index),))
        return join((block, text), ""), None
    if not native:
        return None, None
    inline, rest = split_thinking(flat_text(message))
    return (rest, inline) if inline else (None, None)


def split_thinking(text: Text) -> tuple[str, Text]:
    """Return the reasoning in think blocks within a text, and the text without them, trimmed.

    A closing tag without an opening one ends a block that began with the text. Without reasoning the text
    comes back as it was.
    """
    blocks = list(_BLOCK.finditer(text.text))
    if blocks:
        reasoning = "\n".join(block.group(1) for block in blocks).strip()
        ends = [0, *(block.end() for block in blocks)]
        starts = [*(block.start() for block in blocks), len(text.text)]
        rest = join((text.cut(end, start) for end, start in zip(ends, starts, strict=True)), "")
    elif (closing := _CLOSING.search(text.text)) and not _OPENING.search(text.text):
        reasoning = text.text[: closing.start()].strip()
        rest = text.cut(closing.end(), len(text.text))
    else:
        return "", text
    if not reasoning:
        return "", text
    body = rest.text.strip()
    left = len(rest.text) - len(rest.text.lstrip()) if body else 0
    return reasoning, rest.cut(left, left + len(body))


def normal_effort(value: Any) -> Any:
    """Return a reasoning effort in the spelling that the server tries first."""
    if not isinstance(value, str):
        return value
    spelled = value.strip().lower()
    return spelled if spelled in _EFFORTS or _number(spelled) is not None else value


def other_effort(value: Any) -> Any:
    """Return the effort that the server tries where a template refuses a normal one; None for none."""
    if not isinstance(value, str):
        return None
    return _EFFORTS[value] if value in _EFFORTS else _number(value)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def thinking_type(fields: Mapping[str, Any]) -> bool | None:
    """Return what an Anthropic body's `thinking.type` says of `enable_thinking`; None for nothing."""
    thinking = fields.get("thinking")
    kind = thinking.get("type") if isinstance(thinking, Mapping) else None
    return True if kind in ("enabled", "adaptive") else False if kind == "disabled" else None


def thinking_budget(fields: Mapping[str, Any]) -> int | None:
    """Return the positive token budget for reasoning that a body sets; None for none."""
    thinking = fields.get("thinking")
    inner = thinking.get("budget_tokens") if isinstance(thinking, Mapping) else None
    for budget in (fields.get("thinking_budget"), inner):
        if isinstance(budget, int) and not isinstance(budget, bool) and budget > 0:
            return budget
    return None
