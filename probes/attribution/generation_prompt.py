"""The generation prompt: its text, and whether the same text stands before the reply in history.

Where it does not, every turn's prompt parts from the stored one at the header of the last reply. The rule is
that of oMLX's prompt-tail blocks (docs/servers.md, section 1.18).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..errors import RenderError
from ..templates.inputs import inputs
from ..templates.template import ChatTemplate

#: Variables that switch thinking on and off, the usual one first.
SWITCHES = ("enable_thinking", "thinking")
_PROBE = {"role": "user", "content": "probe"}
_REPLIED = (_PROBE, {"role": "assistant", "content": "reply"}, {"role": "user", "content": "next"})


@dataclass(frozen=True, slots=True)
class Suffix:
    """What a template appends for the model to continue.

    Attributes:
        text: the text; empty where the template writes none, None where it cannot be told from the rest.
        persists: whether it stands before the same reply in history; None where there is no text, or the
            template raises.
    """

    text: str | None
    persists: bool | None


@dataclass(frozen=True, slots=True)
class GenerationPrompt:
    """The generation prompt with the kwargs as given, and with thinking switched on and off.

    Attributes:
        text: as of `Suffix`.
        persists: as of `Suffix`.
        switch: the variable that switches thinking, None where the template reads none that is known.
        on: with the switch true.
        off: with the switch false.
    """

    text: str | None
    persists: bool | None
    switch: str | None = None
    on: Suffix | None = None
    off: Suffix | None = None


def generation_prompt(
    template: ChatTemplate, kwargs: Mapping[str, Any] | None = None, now: datetime | None = None
) -> GenerationPrompt:
    """Find a template's generation prompt.

    Args:
        template: the template.
        kwargs: chat-template kwargs.
        now: the clock that the template shall see.
    """
    given = dict(kwargs or {})
    template.render_ahead(
        {"messages": messages, "kwargs": given, "add_generation_prompt": prompted, "now": now}
        for messages, prompted in (([_PROBE], True), (_REPLIED, False))
    )
    plain = suffix(template, given, now)
    try:
        read = inputs(template.choose(None))
    except RenderError:
        read = frozenset()
    switch = next((name for name in SWITCHES if name in read), None)
    if switch is None:
        return GenerationPrompt(plain.text, plain.persists)
    template.render_ahead(
        {
            "messages": messages,
            "kwargs": {**given, switch: value},
            "add_generation_prompt": prompted,
            "now": now,
        }
        for value in (True, False)
        for messages, prompted in (([_PROBE], True), (_REPLIED, False))
    )
    on, off = (suffix(template, {**given, switch: value}, now) for value in (True, False))
    return GenerationPrompt(plain.text, plain.persists, switch, on, off)


def suffix(template: ChatTemplate, kwargs: Mapping[str, Any], now: datetime | None = None) -> Suffix:
    """Return the generation prompt with one set of kwargs."""
    try:
        whole = template.render([_PROBE], kwargs=kwargs, add_generation_prompt=True, now=now)
        body = template.render([_PROBE], kwargs=kwargs, add_generation_prompt=False, now=now)
    except RenderError:
        return Suffix(None, None)
    if not whole.startswith(body):
        return Suffix(None, None)
    text = whole[len(body) :]
    if not text:
        return Suffix("", None)
    try:
        later = template.render(_REPLIED, kwargs=kwargs, add_generation_prompt=False, now=now)
    except RenderError:
        return Suffix(text, None)
    return Suffix(text, later.startswith(whole))
