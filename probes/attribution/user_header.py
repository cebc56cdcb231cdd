"""The text with which a template opens a user turn."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..errors import RenderError

if TYPE_CHECKING:
    from ..templates.template import ChatTemplate

_REPLY, _NEXT = "An answer.", "Another question?"
_MESSAGES = (
    {"role": "user", "content": "A question?"},
    {"role": "assistant", "content": _REPLY},
    {"role": "user", "content": _NEXT},
)


def user_header(template: ChatTemplate, kwargs: Mapping[str, Any], now: datetime | None = None) -> str:
    """Return what opens a user turn, such as `<|im_start|>user`; empty where it cannot be told.

    It is what stands between an assistant turn and the text of the user turn behind it, without what closes
    the former. llama.cpp looks for such a text in prompts to find where user turns begin (docs/servers.md,
    section 9; ggml-org/llama.cpp#22929).
    """
    try:
        closed = template.render(_MESSAGES[:2], kwargs=kwargs, add_generation_prompt=False, now=now)
        whole = template.render(_MESSAGES, kwargs=kwargs, add_generation_prompt=False, now=now)
    except RenderError:
        return ""
    closing = closed.rpartition(_REPLY)[2]
    between = whole.rpartition(_REPLY)[2].partition(_NEXT)[0]
    return between.removeprefix(closing).strip() if between.startswith(closing) else ""
