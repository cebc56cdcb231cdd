"""What a template takes from outside: variables that it reads before it sets them, and the values it knows.

Jinja's own analysis (`TemplateSource.undeclared`) also lists variables that are set on one path only, such as
a loop's own variables. A chat-template kwarg of such a name is almost never read, so the first occurrence in
the order of evaluation decides here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from jinja2 import nodes

from .jinja import environment
from .source import TemplateSource

#: What every request gives a template, and the special tokens: no chat-template kwargs.
GIVEN = frozenset(
    """messages tools documents add_generation_prompt continue_final_message bos_token eos_token unk_token
    sep_token pad_token cls_token mask_token""".split()
)

#: Names that Jinja itself gives a meaning within loops, macros and blocks.
_SCOPES = frozenset({"loop", "caller", "varargs", "kwargs", "self", "super"})


def inputs(source: TemplateSource) -> frozenset[str]:
    """Return the chat-template kwargs that a template reads.

    Raises:
        RenderError: the source is not valid Jinja.
    """
    first: dict[str, bool] = {}
    for name, read in _in_order(source.tree):
        first.setdefault(name, read)
    macros = {macro.name for macro in source.tree.find_all(nodes.Macro)}
    others = GIVEN | _SCOPES | macros | environment().globals.keys()
    return frozenset(name for name, read in first.items() if read and name not in others)


def compared_texts(source: TemplateSource, variable: str) -> tuple[str, ...]:
    """Return the texts that a template compares a variable with, each once, in order.

    Raises:
        RenderError: the source is not valid Jinja.
    """
    found: dict[str, None] = {}
    for comparison in source.comparisons:
        sides = [comparison.expr, *(operand.expr for operand in comparison.ops)]
        if any(isinstance(side, nodes.Name) and side.name == variable for side in sides):
            found.update(dict.fromkeys(text for side in sides for text in _texts(side)))
    return tuple(found)


def first_line(text: str, name: str) -> int | None:
    """Return the line, counted from 1, on which a name first stands in a text; None where it does not."""
    match = re.search(rf"\b{re.escape(name)}\b", text)
    return None if match is None else text.count("\n", 0, match.start()) + 1


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
