"""The chat-template kwargs that switch something in a template: booleans, and levels of effort."""

from __future__ import annotations

import re

from .inputs import compared_texts, inputs
from .source import TemplateSource

_SWITCH = re.compile(
    r"think|reason|effort|thought|(?<![a-z])cots?(?![a-z])|"
    r"(?<!\w)(?:add|allow|auto|clear|convert|disable|drop|enable|force|hide|include|keep|no|preserve|raw|"
    r"remove|retain|save|show|skip|strip|truncate|use)_",
    re.IGNORECASE,
)
#: A name such as `reasoning_effort`, not one such as `low_effort`, which is itself a level.
_EFFORT = re.compile(r"(?:^|(?<!low)(?<!medium)(?<!high)_)effort$", re.IGNORECASE)
_BOOLEANS = (True, False)
_EFFORTS = ("low", "medium", "high")
#: Most texts that are tried for one switch.
_MOST_TEXTS = 6


def switches(source: TemplateSource) -> dict[str, tuple[bool | str, ...]]:
    """Return the switches that a template takes from outside, each with the values to try.

    They are told by their names. Tried are the texts that the template compares a switch with, and true and
    false, or levels of effort.

    Raises:
        RenderError: the source is not valid Jinja.
    """
    if not _SWITCH.search(re.sub("add_generation_prompt|raise_exception", "", source.text)):
        return {}
    names = sorted(name for name in inputs(source) if _SWITCH.search(name))
    return {name: _values(source, name) for name in names}


def _values(source: TemplateSource, name: str) -> tuple[bool | str, ...]:
    texts = compared_texts(source, name)[:_MOST_TEXTS]
    return tuple(dict.fromkeys((*texts, *_EFFORTS))) if _EFFORT.search(name) else (*_BOOLEANS, *texts)
