"""A static check: does a template use only what can be bounded inside this process?

Most templates do; the rest is rendered in a child (isolation.py) from the start. The answer rests on names,
and a template may deceive it by giving something else a known name: bounds.py looks at the values themselves
while the template runs, and has the last word. No says nothing bad about a template, it is only slower.
"""

from __future__ import annotations

from collections.abc import Iterator

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
    match node:
        case nodes.Filter(name=name):
            return name in _FILTERS or name not in environment().filters
        case nodes.Test(name=name):
            return name not in COSTLY_TESTS
        case nodes.Call(node=nodes.Getattr(attr=name)):
            return name in _METHODS
        case nodes.Compare(ops=operands):
            return len(operands) <= _MAX_COMPARED
        case nodes.Dict(items=pairs):
            return sum(not isinstance(pair.key, nodes.Const) for pair in pairs) <= _MAX_KEYS
        case nodes.Name(name=name):
            return name not in _COSTLY_FUNCTIONS
        case _:
            return not isinstance(node, _FOREIGN)
