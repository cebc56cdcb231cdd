"""Which `if` keeps the messages of a role out of a prompt: one that is not taken, or one that writes nothing.

Read from the syntax tree, without rendering: only comparisons of the message's role with constants are
decided, and a line is named only where exactly one loop and one `if` come into question.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jinja2 import nodes


def skipped_branch_line(found: Sequence[nodes.Node], role: str) -> int | None:
    """Return the line of the `if` that keeps a message of a role out of the prompt, or None where unclear.

    Args:
        found: all nodes of the template's syntax tree.
        role: the message's role.
    """
    constants = {
        node.target.name: node.node
        for node in found
        if isinstance(node, nodes.Assign)
        and isinstance(node.target, nodes.Name)
        and isinstance(node.node, nodes.List | nodes.Tuple | nodes.Const)
    }
    loops = (_Loop(loop, constants, role) for loop in found if isinstance(loop, nodes.For))
    lines = {line for loop in loops for line in loop.untaken()}
    return lines.pop() if len(lines) == 1 else None


class _Loop:
    """One loop that may run over the messages, and what its conditions say about a role."""

    def __init__(self, loop: nodes.For, constants: Mapping[str, nodes.Expr], role: str) -> None:
        self._loop = loop
        self._constants = constants
        self._role = role
        self._message = loop.target.name if isinstance(loop.target, nodes.Name) else ""
        self._aliases = {
            node.target.name
            for node in loop.find_all(nodes.Assign)
            if isinstance(node.target, nodes.Name) and self._is_field(node.node)
        }

    def untaken(self) -> Iterator[int]:
        """Yield the lines of conditions that keep the role out of what this loop writes."""
        if not self._message or not _writes(self._loop):
            return
        if self._loop.test is not None and self._holds(self._loop.test) is False:
            yield self._loop.test.lineno
            return
        yield from self._in_body(self._loop.body)

    def _in_body(self, body: list[nodes.Node]) -> Iterator[int]:
        for chain in body:
            if not isinstance(chain, nodes.If) or not _writes(chain):
                continue
            branches = [chain, *chain.elif_]
            answers = [self._holds(branch.test) for branch in branches]
            if set(answers) == {None} and not any(self._names_role(branch.test) for branch in branches):
                continue
            if True in answers:
                taken = branches[answers.index(True)]
                if any(map(_writes, taken.body)):
                    yield from self._in_body(taken.body)
                else:
                    yield taken.lineno
            elif None not in answers and chain.else_:
                yield from self._in_body(chain.else_)
            elif not chain.else_:
                possible = [
                    branch
                    for branch, answer in zip(branches, answers, strict=True)
                    if answer is None and self._names_role(branch.test)
                ]
                yield (possible or branches)[0].lineno

    def _names_role(self, test: nodes.Node) -> bool:
        """Tell whether a condition holds only for the role, among other things."""
        return isinstance(test, nodes.And) and any(
            self._holds(side) is True or self._names_role(side) for side in (test.left, test.right)
        )

    def _holds(self, test: nodes.Node) -> bool | None:
        """Decide a condition for a message of the role; None where it depends on something else."""
        match test:
            case nodes.And(left=left, right=right):
                sides = (self._holds(left), self._holds(right))
                return False if False in sides else True if sides == (True, True) else None
            case nodes.Or(left=left, right=right):
                sides = (self._holds(left), self._holds(right))
                return True if True in sides else False if sides == (False, False) else None
            case nodes.Not(node=inner):
                answer = self._holds(inner)
                return None if answer is None else not answer
            case nodes.Compare(expr=expr, ops=[nodes.Operand(op=op, expr=other)]):
                if self._is_role(other) and op in ("eq", "ne"):
                    expr, other = other, expr
                values = self._values(other)
                if not self._is_role(expr) or values is None or op not in ("eq", "ne", "in", "notin"):
                    return None
                return (self._role in values) == (op in ("eq", "in"))
            case _:
                return None

    def _is_role(self, node: nodes.Node) -> bool:
        return self._is_field(node) or (isinstance(node, nodes.Name) and node.name in self._aliases)

    def _is_field(self, node: nodes.Node) -> bool:
        match node:
            case nodes.Getattr(node=nodes.Name(name=name), attr="role"):
                return bool(name == self._message)
            case nodes.Getitem(node=nodes.Name(name=name), arg=nodes.Const(value="role")):
                return bool(name == self._message)
            case _:
                return False

    def _values(self, node: nodes.Node) -> list[Any] | None:
        """Return the constants that an expression lists; compiling a tree turns a list of them into one."""
        if isinstance(node, nodes.Name):
            node = self._constants.get(node.name, node)
        if isinstance(node, nodes.Const):
            return list(node.value) if isinstance(node.value, list | tuple) else [node.value]
        if not isinstance(node, nodes.List | nodes.Tuple):
            return None
        constants = [each for each in node.items if isinstance(each, nodes.Const)]
        return [each.value for each in constants] if len(constants) == len(node.items) else None


def _writes(node: nodes.Node) -> bool:
    """Tell whether anything but constant text is written within a node."""
    outputs = [node] if isinstance(node, nodes.Output) else node.find_all(nodes.Output)
    return any(
        not isinstance(child, nodes.TemplateData | nodes.Const)
        for output in outputs
        for child in output.nodes
    )
