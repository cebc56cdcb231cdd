"""The Python code that templates are compiled to: Jinja's own, with the lines of constant output marked."""

from __future__ import annotations

from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame


def _jumps(node: nodes.Node) -> bool:
    """Tell whether a statement may end the pass of the loop that it stands in."""
    if isinstance(node, nodes.Continue | nodes.Break):
        return True
    return not isinstance(node, nodes.For) and any(map(_jumps, node.iter_child_nodes()))


class TemplateCode(CodeGenerator):
    """Jinja's code generator; the code is the same, only its table of lines has more in it.

    Jinja writes no mark where output is constant, so that a chunk's line would be that of an earlier node.
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


class LosingCode(TemplateCode):
    """The code as llama.cpp's engine runs it: what a condition writes before it leaves its loop is lost."""

    def visit_If(self, node: nodes.If, frame: Frame) -> None:
        """Write a condition, collecting its output first where it may leave a loop."""
        if not _jumps(node):
            return super().visit_If(node, frame)
        collecting = frame.soft()
        self.buffer(collecting)
        super().visit_If(node, collecting)
        self.start_write(frame, node)
        self.write(f"concat({collecting.buffer})")
        self.end_write(frame)
        return None
