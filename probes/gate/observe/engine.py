"""llama.cpp's template engine for the gate: the prompts of the optional extra, next to those of Jinja."""

from __future__ import annotations

from dataclasses import replace

from ...conversation import Request
from ...errors import InputError, RenderError
from ...policies.registry import parse_policy
from ...templates.llamacpp import CLOCK, LlamaCppEngine
from ...templates.template import ChatTemplate
from .prompts import PromptOutline, TurnRenders, Turns
from .view_prompts import message_words


class SecondEngine:
    """Renders what llama.cpp's server would hand to its engine.

    Raises:
        InputError: the extra is not installed, or does not work on this machine.
    """

    def __init__(self) -> None:
        self._engine = LlamaCppEngine()
        self._policy = parse_policy("llama-cpp")

    def render(self, request: Request, template: ChatTemplate) -> tuple[PromptOutline, bool | None]:
        """Render a request; also return whether Jinja writes the same, None where either raises."""
        request = request.replace(now=CLOCK)
        prepared = self._policy.prepare(request, template)
        written: str | RenderError
        try:
            written = self._engine.render(prepared, template).prompt
        except RenderError as error:
            written = error
        prompt = Turns(message_words).outline(TurnRenders(request, written))
        if prompt.text is None:
            return prompt, None
        try:
            profile = prepared.profile
            jinja = template.render_request(prepared.request.replace(now=CLOCK), profile=profile)
        except RenderError:
            return prompt, None
        return replace(prompt, request=request), jinja == prompt.text


def engine_or_reason() -> tuple[SecondEngine | None, str]:
    """Return the engine, or None and why there is none."""
    try:
        return SecondEngine(), ""
    except InputError as error:
        return None, str(error)
