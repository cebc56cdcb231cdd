"""The Python code that templates are compiled to: Jinja's own, with line marks and calls added."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame


class TemplateCode(CodeGenerator):
    """Jinja's code generator, with two additions; the code is otherwise the same.

    It marks the template line of constant output, where Jinja writes no mark, so that a chunk's line would be
    that of an earlier node. And it passes lists, tuples, dicts and slices through `built`, and comparisons
    through `identity`: Python looks for signals only at calls and at the ends of loops.
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

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        """Write a list."""
        self._write_built(super().visit_List, node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        """Write a dict."""
        self._write_built(super().visit_Dict, node, frame)

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        """Write a comparison."""
        if all(_constant(operand.expr) for operand in node.ops):
            super().visit_Compare(node, frame)
        else:
            self._write_call("identity", super().visit_Compare, node, frame)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        """Write a subscript or slice."""
        if isinstance(node.arg, nodes.Slice):
            self._write_call("built", super().visit_Getitem, node, frame)
        else:
            super().visit_Getitem(node, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        """Write a tuple, or the targets of an assignment."""
        if node.ctx == "load":
            self._write_built(super().visit_Tuple, node, frame)
        else:
            super().visit_Tuple(node, frame)

    def _write_built(self, write: Callable[[Any, Frame], None], node: nodes.Expr, frame: Frame) -> None:
        if _constant(node):
            write(node, frame)
        else:
            self._write_call("built", write, node, frame)

    def _write_call(
        self, function: str, write: Callable[[Any, Frame], None], node: nodes.Expr, frame: Frame
    ) -> None:
        self.write(function + "(")
        write(node, frame)
        self.write(")")


def _constant(node: nodes.Node) -> bool:
    """Tell whether an expression is a literal."""
    if isinstance(node, nodes.List | nodes.Tuple | nodes.Dict | nodes.Pair):
        return all(map(_constant, node.iter_child_nodes()))
    return isinstance(node, nodes.Const)
