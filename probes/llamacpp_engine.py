"""llama.cpp's own template engine: what its server would make of a prepared request, beside transformers' Jinja.

llama.cpp parses and runs Jinja itself (`common/jinja` of ggml-org/llama.cpp). The package ggufdoctor, an optional
extra, ships that code compiled to WebAssembly, with the server's test of a template's capabilities, its rewriting
of contents and its default variables. What stands above that in the server (`developer`, a missing system role,
arguments of tool calls) is done by the policy `llama-cpp`.

Bounds: a render has 5,000,000,000 units of fuel and 512 MiB of linear memory, both set by ggufdoctor 0.3; the
fuel of an endless loop lasts for seconds (docs/engines.md has measurements). It runs inside this process and
cannot be stopped earlier. Whatever goes wrong is a RenderError.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .conversation import Request
from .errors import InputError, RenderError, RenderLimit
from .policies.base import Prepared

if TYPE_CHECKING:
    from .template import ChatTemplate

EXTRA = "pip install 'tplaudit[llamacpp]'"
#: Special tokens that the engine would make up where a template's model has none.
_MADE_UP = ("bos_token", "eos_token", "unk_token", "pad_token")
#: Characters before and after the first difference that an excerpt shows.
_AROUND = 40


@dataclass(frozen=True, slots=True)
class EngineRender:
    """What llama.cpp's engine made of a request.

    Attributes:
        prompt: the text.
        capabilities: what the engine found that the template takes, by llama.cpp's names.
        rewrote_contents: whether it changed the form of contents for the template.
    """

    prompt: str
    capabilities: Mapping[str, bool]
    rewrote_contents: bool


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A stretch of one prompt around the first difference; `at` is where the difference is within `text`."""

    text: str
    at: int


@dataclass(frozen=True, slots=True)
class EngineDifference:
    """Where the prompts of the two engines part.

    Attributes:
        offset: characters that both share.
        transformers: what transformers' Jinja wrote there.
        llamacpp: what llama.cpp's engine wrote there.
    """

    offset: int
    transformers: Excerpt
    llamacpp: Excerpt


@dataclass(frozen=True, slots=True)
class EngineComparison:
    """One request through both engines. The field names are the JSON names.

    Attributes:
        engine: name and build of llama.cpp's engine.
        transformers: the prompt of transformers' Jinja, or None where it raised.
        llamacpp: the prompt of llama.cpp's engine, or None where it raised.
        transformers_error: what transformers' Jinja raised.
        llamacpp_error: what llama.cpp's engine raised.
        difference: where the prompts part; None where they are the same, or where one is missing.
    """

    engine: str
    transformers: str | None
    llamacpp: str | None
    transformers_error: str | None
    llamacpp_error: str | None
    difference: EngineDifference | None

    @property
    def same(self) -> bool:
        """Whether both engines gave the same prompt, or both none."""
        return self.difference is None and (self.transformers is None) == (self.llamacpp is None)


class LlamaCppEngine:
    """The engine, compiled when first used.

    Raises:
        InputError: the extra is not installed, or does not work on this machine.
    """

    def __init__(self) -> None:
        self._engine = _load()

    @property
    def build(self) -> str:
        """Name and build of the engine, as `llama.cpp b10775`."""
        return f"{self._engine.name} {self._engine.version}"

    def render(self, prepared: Prepared, template: ChatTemplate) -> EngineRender:
        """Render what a policy prepared, with the same messages, tools, kwargs and special tokens.

        Args:
            prepared: the prepared request; of its second attempts none is made.
            template: where the template text and the special tokens come from.

        Raises:
            RenderError: whatever kept the engine from rendering; RenderLimit where that was a bound.
        """
        if prepared.error is not None:
            raise prepared.error
        request = prepared.request
        return self.render_text(template.choose(request.tools).text, _context(request, template))

    def render_text(self, text: str, context: Mapping[str, Any]) -> EngineRender:
        """Render a template text with its variables, `messages` among them.

        Raises:
            RenderError: see `render`.
        """
        try:
            json.dumps(context, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise RenderError("ValueError", f"llama.cpp cannot get these variables as JSON: {error}") from error
        result = self._engine.render(text, dict(context))
        if result.error is not None:
            raise _as_render_error(result.error)
        capabilities = {str(name): bool(value) for name, value in result.extra.get("caps", {}).items()}
        return EngineRender(str(result.text), capabilities, bool(result.extra.get("normalized")))

    def compare(self, prepared: Prepared, template: ChatTemplate) -> EngineComparison:
        """Render a prepared request through both engines and find where the prompts part."""
        ours, ours_error = _attempt(
            lambda: template.render_request(prepared.request, profile=prepared.profile), prepared.error
        )
        theirs, theirs_error = _attempt(lambda: self.render(prepared, template).prompt, None)
        difference = None if ours is None or theirs is None else first_difference(ours, theirs)
        return EngineComparison(self.build, ours, theirs, ours_error, theirs_error, difference)
