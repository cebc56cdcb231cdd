"""The Jinja environment that chat templates run in, set up as transformers sets it up.

Source: `transformers/utils/chat_template_utils.py` of huggingface/transformers 5.24; tests/probes/test_jinja.py
holds this module to it. See docs/rendering.md for what differs and why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextvars import ContextVar
from datetime import datetime
from functools import lru_cache
from typing import Any

import jinja2.ext
import jinja2.meta
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from .errors import RenderLimit

#: Most characters, list items or bits that one multiplication, power or `%` format may produce.
MAX_OPERAND = 10_000_000

clock: ContextVar[datetime | None] = ContextVar("clock", default=None)


class GenerationTag(jinja2.ext.Extension):
    """`{% generation %}…{% endgeneration %}`: brackets text and writes it unchanged."""

    tags = {"generation"}  # noqa: RUF012 - Jinja reads a plain class attribute

    def parse(self, parser: Any) -> nodes.CallBlock:
        """Parse the block up to its end tag."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_write"), [], [], body).set_lineno(line)

    def _write(self, caller: Callable[[], str]) -> str:
        return caller()


class TemplateDict:
    """The `dict` of a chat template: it can be called and offers `fromkeys`, nothing else."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        """Return `dict.fromkeys(*args)`."""
        return dict.fromkeys(*args)


class TemplateNamespace(Namespace):
    """The `namespace` of a chat template: it refuses names that begin with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # like Jinja's: `namespace(self=…)` is legal
        self, args = args[0], args[1:]
        attributes = dict(*args, **kwargs)
        for name in attributes:
            _refuse_underscore(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_underscore(name)
        Namespace.__setitem__(self, name, value)


def _refuse_underscore(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace takes no attribute that begins with an underscore: {name!r}")


def raise_exception(message: Any) -> None:
    """Raise the error that a template asked for."""
    raise TemplateError(message)


def tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON without escaping HTML, as chat templates expect."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def strftime_now(format: str) -> str:
    """Format the local time, or the pinned one."""
    return (clock.get() or datetime.now()).strftime(format)


class LineMarks(CodeGenerator):
    """Jinja's code generator, which also marks the template line of constant output.

    Jinja writes no line mark for output that it folds into a constant, so that a chunk's line would be that of
    an earlier node. The generated code is otherwise identical.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._const_lines: list[int] = []

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        text = super()._output_child_to_const(node, frame, finalize)
        self._const_lines.append(node.lineno)
        return text

    def _output_const_repr(self, group: Any) -> str:
        group = list(group)
        line = self._const_lines[0]
        del self._const_lines[: len(group)]
        if line != self._last_line:
            self._write_debug_info = self._last_line = line
        return super()._output_const_repr(group)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox, with a bound on the operators whose one step could take for ever."""

    code_generator_class = LineMarks
    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Apply `*`, `**` or `%`, unless the result would be absurdly large."""
        if _result_size(operator, left, right) > MAX_OPERAND:
            raise RenderLimit(f"the template computes a value of more than {MAX_OPERAND:,} characters or bits")
        return super().call_binop(context, operator, left, right)


_WIDTH = re.compile(r"%[^%a-zA-Z]*?(\d{5,}|\*)")


def _result_size(operator: str, left: Any, right: Any) -> int:
    """Estimate the size of an operator's result, in characters, items or bits; 0 where it is harmless."""
    if operator == "%":
        return MAX_OPERAND + 1 if isinstance(left, str) and _WIDTH.search(left) else 0
    if isinstance(left, int) and isinstance(right, int):
        bits = max(left.bit_length(), 1)
        return bits + right.bit_length() if operator == "*" else bits * max(right, 0)
    for sequence, times in ((left, right), (right, left)):
        if isinstance(sequence, str | list | tuple) and isinstance(times, int):
            return len(sequence) * max(times, 0)
    return 0


@lru_cache(maxsize=1)
def environment() -> TemplateEnvironment:
    """Return the one environment; templates share it as they do in transformers."""
    env = TemplateEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals.update(
        raise_exception=raise_exception,
        strftime_now=strftime_now,
        dict=TemplateDict(),
        namespace=TemplateNamespace,
    )
    return env


def undeclared_variables(tree: nodes.Template) -> frozenset[str]:
    """Return the names that a template takes from outside, by Jinja's own analysis."""
    return frozenset(jinja2.meta.find_undeclared_variables(tree))
