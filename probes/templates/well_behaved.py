"""A static check: does a template use only what can be bounded inside this process?

Most templates do; the rest is rendered in a child (isolation.py) from the start. The answer rests on names,
and a template may deceive it by giving something else a known name: bounds.py looks at the values themselves
while the template runs, and has the last word. No says nothing bad about a template, it is only slower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from jinja2 import nodes

from .jinja import (
    CHECKED_FILTERS,
    COSTLY_TESTS,
    LOOP_METHODS,
    METHODS,
    MUTATORS,
    PLAIN_FILTERS,
    TEXT_FILTERS,
    environment,
)

_FILTERS = PLAIN_FILTERS | TEXT_FILTERS | CHECKED_FILTERS
_METHODS = METHODS | LOOP_METHODS | MUTATORS
#: Functions of Jinja that chat templates have no use for.
_COSTLY_FUNCTIONS = frozenset({"cycler", "joiner", "lipsum"})
_FOREIGN = (
    nodes.Block,
    nodes.EvalContextModifier,
    nodes.Extends,
    nodes.FromImport,
    nodes.Import,
    nodes.Include,
)
#: Comparisons and keys of one expression, between which no signal arrives.
_MAX_COMPARED = 2
_MAX_KEYS = 100
#: Compiling a larger template is itself a long step.
_MAX_NODES = 20_000


def well_behaved(tree: nodes.Template) -> bool:
    """Tell whether every step of this template is one that bounds.py knows.

    Args:
        tree: the template's syntax tree, as `Environment.parse` returns it.
    """
    return all(count <= _MAX_NODES and _bounded(node) for count, node in enumerate(_walk(tree)))


def _walk(node: nodes.Node) -> Iterator[nodes.Node]:
    open_ = [node]
    while open_:
        node = open_.pop()
        yield node
        open_.extend(node.iter_child_nodes())


def _bounded(node: nodes.Node) -> bool:
    check = _CHECKS.get(type(node))
    return not isinstance(node, _FOREIGN) if check is None else check(node)


def _call_bounded(node: nodes.Call) -> bool:
    return not isinstance(node.node, nodes.Getattr) or node.node.attr in _METHODS


def _keys_bounded(node: nodes.Dict) -> bool:
    return sum(not isinstance(pair.key, nodes.Const) for pair in node.items) <= _MAX_KEYS


_CHECKS: dict[type[nodes.Node], Callable[[Any], bool]] = {
    nodes.Filter: lambda node: node.name in _FILTERS or node.name not in environment().filters,
    nodes.Test: lambda node: node.name not in COSTLY_TESTS,
    nodes.Call: _call_bounded,
    nodes.Compare: lambda node: len(node.ops) <= _MAX_COMPARED,
    nodes.Dict: _keys_bounded,
    nodes.Name: lambda node: node.name not in _COSTLY_FUNCTIONS,
}
