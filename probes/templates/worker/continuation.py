"""Where a prompt ends that continues its last message (`continue_final_message`), as transformers cuts it.

The text to be continued gets a mark at its end before the render; the prompt is cut there afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import RenderError

_MARK = "TPLAUDIT_CONTINUATION_MARK "  # as long as transformers' own


def mark(message: dict[str, Any], field: str, names: Sequence[str]) -> None:
    """Mark the end of a message's field, in place.

    Args:
        message: the message, a copy of its own.
        field: the field that is continued.
        names: all names under which the same text may stand, since a template reads one of them.

    Raises:
        RenderError: the field has no text.
    """
    value = message.get(field)
    if isinstance(value, list):
        part = _last_text_part(value)
        part["text"] = part["text"] + _MARK
    elif isinstance(value, str):
        for key in names:
            if message.get(key) == value:
                message[key] = value + _MARK
    else:
        raise _nothing_to_continue(field)


def cut(prompt: str, message: Mapping[str, Any], field: str) -> str:
    """Cut a prompt at the mark, or before the white space that the template trimmed with it.

    Args:
        prompt: the prompt with the mark.
        message: the last message, without it.
        field: the field that is continued.

    Raises:
        RenderError: the template did not write the text.
    """
    value = message[field]
    last = value if isinstance(value, str) else str(_last_text_part(value)["text"])
    at = prompt.rfind(_MARK.strip())
    if at < 0 or last.strip() not in prompt:
        raise RenderError("ValueError", "the text of the message to be continued is not in the prompt")
    return prompt[:at] if prompt.startswith(_MARK, at) else prompt[:at].rstrip()


def _last_text_part(parts: Sequence[Any]) -> Any:
    for part in reversed(parts):
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            return part
    raise _nothing_to_continue("content")


def _nothing_to_continue(field: str) -> RenderError:
    return RenderError("ValueError", f"the last message has no text in {field!r} to continue")
