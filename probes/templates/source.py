"""The source text of a template, and what is found from it once: tree, names, compiled code."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cached_property
from typing import TypeVar

from jinja2 import Template, nodes

from ..errors import RenderLimit
from . import bounds
from .jinja import undeclared_variables
from .prompt_end import generation_prompt_ends
from .rendering import as_render_error, compile_template, parse_template
from .well_behaved import well_behaved

#: Seconds that the parsing of a template may take.
_PARSE_SECONDS = 10.0
#: Longest source text, in characters, that is compiled inside this process.
_LONGEST_SOURCE = 1_000_000

Result = TypeVar("Result")


class TemplateSource:
    """The source text of one template, parsed and compiled at most once, when first needed."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __reduce__(self) -> tuple[type[TemplateSource], tuple[str]]:
        """Pickle the text alone: what was made of it is made again where it is needed."""
        return TemplateSource, (self.text,)

    @cached_property
    def tree(self) -> nodes.Template:
        """The syntax tree. Raises RenderError where the source is not valid Jinja, or nested too deeply."""
        return self._bounded(lambda: parse_template(self.text))

    @cached_property
    def undeclared(self) -> frozenset[str]:
        """The variables that the template takes from outside."""
        return self._analyse(lambda tree: self._bounded(lambda: undeclared_variables(tree)))

    @cached_property
    def generation_prompt_ends(self) -> bool:
        """Whether a prompt without its generation prompt can be cut from the one with it."""
        return self._analyse(generation_prompt_ends)

    @cached_property
    def prints_time(self) -> bool:
        """Whether the template may print the time."""
        return "strftime_now" in self.text

    @cached_property
    def well_behaved(self) -> bool:
        """Whether it is rendered inside this process, as it is until it leaves its bounds (bounds.py)."""
        return len(self.text) <= _LONGEST_SOURCE and self._analyse(well_behaved)

    @cached_property
    def compiled(self) -> Template:
        """The compiled template, for well-behaved ones."""
        return compile_template(self.tree)

    @cached_property
    def comparisons(self) -> tuple[nodes.Compare, ...]:
        """All comparisons of the template, in order."""
        return self._analyse(lambda tree: tuple(tree.find_all(nodes.Compare)))

    @cached_property
    def sha256(self) -> str:
        """Hash of the source text, hexadecimal."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()

    def _analyse(self, function: Callable[[nodes.Template], Result]) -> Result:
        """Ask something of the tree. A tree may be parsed and still be too deep to be walked."""
        tree = self.tree
        try:
            return function(tree)
        except Exception as error:
            raise as_render_error(error) from error

    def _bounded(self, function: Callable[[], Result]) -> Result:
        if not bounds.can_run():
            return function()
        try:
            return bounds.run(function, _PARSE_SECONDS)
        except bounds.Unbounded:
            raise RenderLimit("the template is too large") from None
