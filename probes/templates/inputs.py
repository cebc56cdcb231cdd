"""What a template takes from outside: variables that it reads before it sets them, and values it knows."""

from __future__ import annotations

import re

from .source import TemplateSource

#: What every request gives a template, and the special tokens: no chat-template kwargs.
GIVEN = frozenset(
    """messages tools documents add_generation_prompt continue_final_message bos_token eos_token unk_token
    sep_token pad_token cls_token mask_token""".split()
)


def inputs(source: TemplateSource) -> frozenset[str]:
    """Return the chat-template kwargs that a template reads.

    Raises:
        RenderError: the source is not valid Jinja.
    """
    return source.names.inputs - GIVEN


def compared_texts(source: TemplateSource, variable: str) -> tuple[str, ...]:
    """Return the texts that a template compares a variable with, each once, in order.

    Raises:
        RenderError: the source is not valid Jinja.
    """
    return source.names.compared.get(variable, ())


def first_line(text: str, name: str) -> int | None:
    """Return the line, counted from 1, on which a name first stands in a text; None where it does not."""
    match = re.search(rf"\b{re.escape(name)}\b", text)
    return None if match is None else text.count("\n", 0, match.start()) + 1
