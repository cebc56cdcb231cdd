"""Whether a template goes through the parts of contents, as servers find it out from its syntax tree.

Servers that find such a loop hand contents to the template as lists of parts, else as texts. Their rules are
kept as they are, with what they overlook: vLLM's (`vllm/renderers/hf.py`, `_iter_nodes_assign_content_item`,
0.33.0) and SGLang's (`sglang/srt/parser/jinja_template_utils.py`, 0.5.23).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jinja2 import nodes

#: What SGLang takes for the name of a message.
_NAMES = ("message", "msg", "m")


def named(found: Sequence[nodes.Node]) -> bool:
    """Tell whether there is a loop over the content of what is called `message`, `msg` or `m`.

    Args:
        found: all nodes of the tree.
    """
    return any(
        isinstance(node, nodes.For) and any(_reads(node.iter, name, "content") for name in _NAMES)
        for node in found
    )


def followed(found: Sequence[nodes.Node]) -> bool:
    """Tell whether there is a loop over the content of a message, wherever it was taken from `messages`.

    A loop over a variable called `content` counts outside of macros; within one, a loop over a parameter that
    a call of the macro gives a message's content for.

    Args:
        found: all nodes of the tree.
    """
    lists = _copies(found, "messages")
    loops = [node for node in found if isinstance(node, nodes.For)]
    over = [loop.target for loop in loops if any(_reads(loop.iter, each) for each in lists)]
    messages = [target.name for target in over if isinstance(target, nodes.Name)]
    if len(messages) < len(over):
        return False  # the server fails on a loop that binds several names
    parameters, within = _macro_contents(found, messages)
    for loop in loops:
        name = loop.iter.name if isinstance(loop.iter, nodes.Name) else ""
        if (
            any(_reads(loop.iter, message, "content") for message in messages)
            or name in parameters.get(id(loop), ())
            or (name == "content" and id(loop) not in within)
        ):
            return isinstance(loop.target, nodes.Name)
    return False


def _reads(node: nodes.Node, variable: str, key: str | None = None) -> bool:
    """Tell whether an expression is a variable, or a key of it, or a slice of that, with filters or tests."""
    while isinstance(node, nodes.Filter | nodes.Test) or (
        isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
    ):
        if node.node is None:
            return False
        node = node.node
    if key is None:
        return _is_variable(node, variable)
    if isinstance(node, nodes.Getitem):
        constant = isinstance(node.arg, nodes.Const) and node.arg.value == key
        return constant and _is_variable(node.node, variable)
    return isinstance(node, nodes.Getattr) and node.attr == key and _is_variable(node.node, variable)


def _is_variable(node: nodes.Node, variable: str) -> bool:
    """Tell whether an expression reads a variable; `ns.rest` is the attribute of a namespace."""
    if isinstance(node, nodes.Name):
        return node.ctx == "load" and node.name == variable
    if isinstance(node, nodes.Getattr) and "." in variable:
        base, _, attribute = variable.rpartition(".")
        return node.attr == attribute and _is_variable(node.node, base)
    return False


def _copies(found: Sequence[nodes.Node], variable: str) -> list[str]:
    """Return a variable and the others that it is assigned to, those of namespaces as `ns.name`."""
    assigned = [node for node in found if isinstance(node, nodes.Assign)]
    known = [variable]
    for each in known:  # grows while it is read
        for node in assigned:
            known += (name for name in _takes(node, each) if name not in known)
    return known


def _takes(node: nodes.Assign, variable: str) -> Iterator[str]:
    """Yield the names that an assignment gives a variable's value to."""
    target, value = node.target, node.node
    if isinstance(target, nodes.Name):
        if _reads(value, variable):
            yield target.name
        elif (
            isinstance(value, nodes.Call)
            and isinstance(value.node, nodes.Name)
            and value.node.name == "namespace"
        ):
            for keyword in value.kwargs:
                if _reads(keyword.value, variable):
                    yield f"{target.name}.{keyword.key}"
    elif isinstance(target, nodes.NSRef) and _reads(value, variable):
        yield f"{target.name}.{target.attr}"


def _macro_contents(
    found: Sequence[nodes.Node], messages: Sequence[str]
) -> tuple[Mapping[int, set[str]], set[int]]:
    """Return, for each loop within a macro, the parameters that get contents; and all such loops, by id."""
    calls = [
        (node.node.name, node)
        for node in found
        if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name)
    ]
    parameters: dict[int, set[str]] = {}
    within: set[int] = set()
    for macro in (node for node in found if isinstance(node, nodes.Macro)):
        names = [argument.name for argument in macro.args]
        contents: set[str] = set()
        for called, call in calls:
            if called == macro.name:
                given = [*zip(names, call.args, strict=False)]
                given += [(each.key, each.value) for each in call.kwargs if each.key in names]
                contents |= {
                    name for name, value in given if any(_reads(value, each, "content") for each in messages)
                }
        for loop in macro.find_all(nodes.For):
            within.add(id(loop))
            if contents:
                parameters[id(loop)] = contents
    return parameters, within
