"""What a template's syntax tree tells of the variables that it takes from outside; nothing is computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jinja2.meta
from jinja2 import nodes
from jinja2.compiler import Frame

from .environment import environment

#: Names that Jinja itself gives a meaning within loops, macros and blocks.
_SCOPES = frozenset({"loop", "caller", "varargs", "kwargs", "self", "super"})


def inputs(found: Sequence[nodes.Node]) -> list[str]:
    """Return the names that are read before they are set, sorted.

    Jinja's own analysis (`undeclared`) also lists variables that are set on one path only, such as a loop's
    own variables. A chat-template kwarg of such a name is almost never read, so the first occurrence in the
    order of evaluation decides here.

    Args:
        found: all nodes of the tree, itself first.
    """
    first: dict[str, bool] = {}
    for name, read in _in_order(found[0]):
        first.setdefault(name, read)
    macros = {node.name for node in found if isinstance(node, nodes.Macro)}
    others = _SCOPES | macros | environment().globals.keys()
    return sorted(name for name, read in first.items() if read and name not in others)


def compared_texts(found: Sequence[nodes.Node]) -> dict[str, list[str]]:
    """Return, for each name that is compared with texts, those texts, each once, in order.

    Args:
        found: all nodes of the tree.
    """
    known: dict[str, dict[str, None]] = {}
    for comparison in found:
        if not isinstance(comparison, nodes.Compare):
            continue
        sides = [comparison.expr, *(operand.expr for operand in comparison.ops)]
        names = {side.name for side in sides if isinstance(side, nodes.Name)}
        texts = dict.fromkeys(text for side in sides for text in _texts(side)) if names else {}
        for name in names if texts else ():
            known.setdefault(name, {}).update(texts)
    return {name: list(texts) for name, texts in known.items()}


def _texts(node: nodes.Node) -> Iterator[str]:
    if isinstance(node, nodes.Const):  # compiling a tree turns a list of constants into one
        values = node.value if isinstance(node.value, list | tuple) else [node.value]
        yield from (value for value in values if isinstance(value, str))
    elif isinstance(node, nodes.List | nodes.Tuple):
        for item in node.items:
            yield from _texts(item)


def _in_order(node: nodes.Node) -> Iterator[tuple[str, bool]]:
    """Yield names in the order in which they are evaluated, and whether each is read."""
    match node:
        case nodes.Name(name=name, ctx=context):
            yield name, context == "load"
            return
        case nodes.Assign(target=target, node=value):
            children: list[nodes.Node] = [value, target]
        case nodes.For(iter=over, target=target, test=test, body=body, else_=otherwise):
            children = [over, target, *([test] if test else []), *body, *otherwise]
        case _:
            children = list(node.iter_child_nodes())
    for child in children:
        yield from _in_order(child)


class _NameTracker(jinja2.meta.TrackingCodeGenerator):
    """Jinja's own analysis of names, without folding constants."""

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        if isinstance(node, nodes.TemplateData):
            return super()._output_child_to_const(node, frame, finalize)
        raise nodes.Impossible


def undeclared(tree: nodes.Template) -> list[str]:
    """Return the names that a template takes from outside, by Jinja's own analysis, sorted."""
    tracker = _NameTracker(environment())
    tracker.optimizer = None
    tracker.visit(tree)
    return sorted(tracker.undeclared_identifiers)
