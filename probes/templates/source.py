"""The source text of a template, and what the worker finds out from it, each thing once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..errors import RenderError
from .renderer import renderer
from .rendering import Limits

_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class TemplateNames:
    """The variables of a template.

    Attributes:
        inputs: those that it reads before it sets them.
        compared: for each that it compares with texts, those texts in order.
    """

    inputs: frozenset[str]
    compared: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class ContentLoops:
    """Whether a template has a loop over the parts of a message's content, as two servers look for one.

    Attributes:
        followed: over the content of a loop variable over `messages`, its copies and macros followed (vLLM).
        named: over the content of what is called `message`, `msg` or `m` (SGLang).
    """

    followed: bool
    named: bool


class TemplateSource:
    """The source text of one template. It is parsed in the worker alone (renderer.py).

    Args:
        text: the source text.
        limits: bounds of each question about it.
    """

    def __init__(self, text: str, limits: Limits = _LIMITS) -> None:
        self.text = text
        self.limits = limits
        self._failed: dict[str, RenderError] = {}

    def __reduce__(self) -> tuple[type[TemplateSource], tuple[str, Limits]]:
        """Pickle the text alone: what was found out is found out again where it is needed."""
        return TemplateSource, (self.text, self.limits)

    def check(self) -> None:
        """Raise RenderError where the source cannot be parsed and compiled, or writes nothing."""
        if self._empty:
            raise RenderError("EmptyPrompt", "the template renders nothing")

    @cached_property
    def _empty(self) -> bool:
        return bool(self._ask("check"))

    @cached_property
    def names(self) -> TemplateNames:
        """Its variables. Raises RenderError where the source is not valid Jinja, or nested too deeply."""
        inputs, compared = self._ask("names")
        return TemplateNames(frozenset(inputs), {name: tuple(texts) for name, texts in compared.items()})

    @cached_property
    def undeclared(self) -> frozenset[str]:
        """The variables that the template takes from outside, by Jinja's own analysis."""
        return frozenset(self._ask("undeclared"))

    @cached_property
    def content_loops(self) -> ContentLoops:
        """Its loops over parts of contents. Raises RenderError where the source is not valid Jinja."""
        return ContentLoops(*self._ask("content-loops"))

    @cached_property
    def generation_prompt_ends(self) -> bool:
        """Whether a prompt without its generation prompt can be cut from the one with it."""
        return bool(self._ask("prompt-ends"))

    @cached_property
    def prints_time(self) -> bool:
        """Whether the template may print the time."""
        return "strftime_now" in self.text

    @cached_property
    def sha256(self) -> str:
        """Hash of the source text, hexadecimal."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()

    @cached_property
    def _skipped(self) -> dict[str, int | None]:
        return {}

    def skipped_branch_line(self, role: str) -> int | None:
        """Return the line of the `if` that keeps a message of a role out of the prompt; None where unclear.

        Raises:
            RenderError: the source is not valid Jinja.
        """
        if role not in self._skipped:
            self._skipped[role] = self._ask("skipped-branch", role)
        return self._skipped[role]

    def _ask(self, kind: str, *arguments: Any) -> Any:
        if kind in self._failed:
            raise self._failed[kind].with_traceback(None)
        try:
            return renderer.ask(self.text, kind, *arguments, limits=self.limits)
        except RenderError as error:
            self._failed[kind] = error
            raise
