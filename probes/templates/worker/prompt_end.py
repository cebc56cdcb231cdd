"""Whether a template's generation prompt is the end of its prompt, found from its syntax tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jinja2 import nodes

_FLAG = "add_generation_prompt"


def generation_prompt_ends(tree: nodes.Template, sections: Sequence[Sequence[nodes.Node]]) -> bool:
    """Tell whether all that a template does with `add_generation_prompt` is to end with an `if` of it.

    Then the prompt without it is what was written before the template asked.

    Args:
        tree: the syntax tree.
        sections: all nodes of each of its outermost statements.
    """
    flags = [[node for node in section if _is_flag(node)] for section in sections]
    if any(flag.ctx != "load" for found in flags for flag in found):  # type: ignore[attr-defined]
        return False
    first = next((at for at, found in enumerate(flags) if found), len(flags))
    return all(
        isinstance(node, nodes.If)
        and not node.elif_
        and not node.else_
        and _ends_with_flag(node.test)
        and not any(map(_names_flag, node.body))
        for node in tree.body[first:]
    )


def _ends_with_flag(test: nodes.Node) -> bool:
    """Tell whether a test is false where the flag is, and takes no more from the flag than its truth."""
    operands = list(_operands(test))
    others = [each for each in operands if not _is_flag(each)]
    return len(others) < len(operands) and not any(
        _names_flag(each) for each in others if not _is_defined(each)
    )


def _operands(test: nodes.Node) -> Iterator[nodes.Node]:
    if isinstance(test, nodes.And):
        yield from _operands(test.left)
        yield from _operands(test.right)
    else:
        yield test


def _is_flag(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Name) and node.name == _FLAG


def _is_defined(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Test) and node.name == "defined" and _is_flag(node.node)


def _names_flag(node: nodes.Node) -> bool:
    return _is_flag(node) or any(map(_is_flag, node.find_all(nodes.Name)))
