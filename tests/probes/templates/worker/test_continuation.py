"""Prompts that continue their last message; test_rendering_reference.py compares with transformers."""

from __future__ import annotations

from typing import Any

import pytest
from tplaudit.probes.errors import RenderError
from tplaudit.probes.templates.worker.continuation import cut, mark

KEYS = ("reasoning_content", "thinking")


def marked(message: dict[str, Any], field: str = "content", names: tuple[str, ...] = ("content",)) -> Any:
    mark(message, field, names)
    return message[field]


def test_the_prompt_ends_where_the_text_does() -> None:
    text = marked({"content": "half a "})
    assert cut(f"<a>{text}</a>", {"content": "half a "}, "content") == "<a>half a "
    # A template that trims takes the white space before the mark along.
    assert cut(f"<a>{text.strip()}</a>", {"content": "half a "}, "content") == "<a>half a"


def test_the_last_text_part_is_continued() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "image"}]
    text = marked({"content": [dict(part) for part in parts]})[0]["text"]
    assert cut(text + "!", {"content": parts}, "content") == "one"


def test_reasoning_is_marked_under_each_of_its_names() -> None:
    message = {"reasoning_content": "so", "thinking": "so", "content": "so"}
    assert marked(message, "reasoning_content", KEYS) == message["thinking"] != "so" == message["content"]


@pytest.mark.parametrize("content", [None, [], [{"type": "image"}], 3])
def test_what_has_no_text_cannot_be_continued(content: Any) -> None:
    with pytest.raises(RenderError, match="no text in 'content' to continue"):
        mark({"content": content}, "content", ("content",))


def test_a_template_that_does_not_write_it() -> None:
    with pytest.raises(RenderError, match="is not in the prompt"):
        cut("<a></a>", {"content": "half"}, "content")
