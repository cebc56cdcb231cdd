"""A static check: can a template be rendered inside this process without any risk of it running away?

Inside one process a single step such as `9**9**9` or the building of a 10 GB string cannot be interrupted, so
that only a child process can bound it. Nearly all real templates cannot do such a thing, and this module proves it
for them from their syntax tree; the rest is rendered in a child (isolation.py). The answer is conservative: no
says nothing bad about a template, it is only slower.

A template is well behaved when
- its operators, filters, tests, functions and methods are among those whose result is at most about as large as
  what they are given (`*`, `**` and `%` are bounded by the environment, jinja.py);
- no macro can reach itself, no loop is recursive, and loops over data that does not shrink nest at most twice;
- no variable can grow by a factor in a loop: it may take up its own earlier value once, not twice.
"""

from __future__ import annotations

from collections.abc import Iterator

from jinja2 import nodes

_FILTERS = frozenset(
    """capitalize count d default dictsort e escape first float forceescape from_json fromjson int items last length
    list lower map max min reject rejectattr reverse round safe select selectattr sort string title tojson trim
    unique upper""".split()
)
_METHODS = frozenset(
    """append capitalize count endswith extend find get index isdigit items keys lower lstrip pop removeprefix
    removesuffix rfind rsplit rstrip split splitlines startswith strip title update upper values""".split()
)
_FUNCTIONS = frozenset({"caller", "dict", "namespace", "raise_exception", "range", "strftime_now"})
_TESTS = frozenset(
    """boolean defined eq equalto false float ge gt in integer iterable le lt mapping ne none number sequence string
    true undefined""".split()
) | {"==", "!=", "<", ">", "<=", ">="}
#: They may repeat what they are given, so that a variable that passes through them counts twice.
_GROWING_FILTERS = frozenset({"join", "replace"})
_GROWING_METHODS = frozenset({"join", "replace"})

_STATEMENTS = (
    nodes.Template,
    nodes.Output,
    nodes.TemplateData,
    nodes.For,
    nodes.If,
    nodes.Assign,
    nodes.AssignBlock,
    nodes.Macro,
    nodes.CallBlock,
    nodes.FilterBlock,
    nodes.ExprStmt,
    nodes.Break,
    nodes.Continue,
    nodes.Scope,
)
_EXPRESSIONS = (
    nodes.Name,
    nodes.NSRef,
    nodes.Const,
    nodes.Tuple,
    nodes.List,
    nodes.Dict,
    nodes.Pair,
    nodes.Keyword,
    nodes.CondExpr,
    nodes.Filter,
    nodes.Test,
    nodes.Call,
    nodes.Getitem,
    nodes.Getattr,
    nodes.Slice,
    nodes.Concat,
    nodes.Compare,
    nodes.Operand,
    nodes.BinExpr,
    nodes.UnaryExpr,
    nodes.ExtensionAttribute,
)

_MAX_NODES = 20_000
_MAX_LOOPS = 4
_MAX_INDEPENDENT_LOOPS = 2
_MAX_RANGE = 1_000


def well_behaved(tree: nodes.Template) -> bool:
    """Tell whether every render of this template is bounded by a small multiple of its input.

    Args:
        tree: the template's syntax tree, as `Environment.parse` returns it.
    """
    macros = {macro.name: macro for macro in tree.find_all(nodes.Macro)}
    everything = list(_walk(tree))
    return (
        len(everything) <= _MAX_NODES
        and all(_harmless(node, macros) for node in everything)
        and _loops_bounded(tree, macros)
        and _growth_bounded(tree)
    )


def _walk(node: nodes.Node) -> Iterator[nodes.Node]:
    yield node
    for child in node.iter_child_nodes():
        yield from _walk(child)


def _harmless(node: nodes.Node, macros: dict[str, nodes.Macro]) -> bool:
    """Tell whether one node, taken alone, gives no more than a small multiple of what it takes."""
    match node:
        case nodes.Filter(name=("map" | "select" | "reject") as name):
            return not node.args or _constant_name(node.args[0], _FILTERS if name == "map" else _TESTS)
        case nodes.Filter(name="tojson"):
            return not node.args and all(
                keyword.key in ("ensure_ascii", "sort_keys", "separators") or _small(keyword.value)
                for keyword in node.kwargs
            )
        case nodes.Filter():
            return node.name in _FILTERS | _GROWING_FILTERS
        case nodes.Call(node=nodes.Name(name=name)):
            if name == "range":
                return all(_small(argument) for argument in node.args)
            return name in _FUNCTIONS or name in macros
        case nodes.Call(node=nodes.Getattr(attr=attr)):
            return attr in _METHODS | _GROWING_METHODS
        case nodes.Call():
            return isinstance(node.node, nodes.ExtensionAttribute)
        case nodes.For():
            return not node.recursive
        case nodes.Macro():
            return not any(child is not node and isinstance(child, nodes.Macro) for child in _walk(node))
        case _:
            return isinstance(node, _STATEMENTS + _EXPRESSIONS)


def _constant_name(node: nodes.Node, names: frozenset[str]) -> bool:
    return isinstance(node, nodes.Const) and node.value in names


def _small(node: nodes.Node) -> bool:
    """Tell whether an expression is a small number: a constant, or a length and arithmetic on it."""
    match node:
        case nodes.Const(value=value):
            return value is None or (isinstance(value, int) and -_MAX_RANGE <= value <= _MAX_RANGE)
        case nodes.Filter(name="length" | "count"):
            return True
        case nodes.Add(left=left, right=right) | nodes.Sub(left=left, right=right):
            return _small(left) and _small(right)
        case nodes.Neg(node=inner):
            return _small(inner)
        case nodes.Getattr(node=nodes.Name(name="loop"), attr="index" | "index0" | "length" | "revindex"):
            return True
        case _:
            return False


def _loops_bounded(tree: nodes.Template, macros: dict[str, nodes.Macro]) -> bool:
    """Tell whether loops nest little enough, calls of macros included, and no macro reaches itself."""

    def visit(node: nodes.Node, loops: int, independent: int, derived: frozenset[str], active: tuple[str, ...]) -> bool:
        nonlocal steps
        steps += 1
        if steps > _MAX_NODES * 10 or loops > _MAX_LOOPS or independent > _MAX_INDEPENDENT_LOOPS:
            return False
        if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name) and node.node.name in macros:
            name = node.node.name
            if name in active:
                return False
            macro = macros[name]
            arguments = frozenset(argument.name for argument in macro.args) if derived else frozenset()
            if not all(
                visit(child, loops, independent, arguments, (*active, name)) for child in macro.iter_child_nodes()
            ):
                return False
        if isinstance(node, nodes.Macro):
            return True  # visited where it is called, and below where nothing calls it
        if isinstance(node, nodes.For):
            own = not _names(node.iter) or not (_names(node.iter) <= derived)
            inner = derived | _names(node.target) | {"loop"}
            return visit(node.iter, loops, independent, derived, active) and all(
                visit(child, loops + 1, independent + own, _derive(node, inner), active)
                for child in node.iter_child_nodes()
                if child is not node.iter
            )
        return all(visit(child, loops, independent, derived, active) for child in node.iter_child_nodes())

    steps = 0
    return visit(tree, 0, 0, frozenset(), ()) and all(
        visit(child, 0, 0, frozenset(), (name,)) for name, macro in macros.items() for child in macro.iter_child_nodes()
    )


def _derive(loop: nodes.For, derived: frozenset[str]) -> frozenset[str]:
    """Add the names that the loop's body sets from nothing but the loop's own element."""
    assigned: dict[str, list[frozenset[str]]] = {}
    for node in loop.find_all(nodes.Assign):
        if isinstance(node.target, nodes.Name):
            assigned.setdefault(node.target.name, []).append(_names(node.node))
    for _ in assigned:
        derived |= {
            name for name, sources in assigned.items() if all(source <= derived for source in sources)
        }
    return derived


def _names(node: nodes.Node) -> frozenset[str]:
    names = {child.name for child in _walk(node) if isinstance(child, nodes.Name)}
    return frozenset(names - _FUNCTIONS)


def _growth_bounded(tree: nodes.Template) -> bool:
    """Tell whether no variable takes up its own earlier value more than once, directly or through others."""
    flows: dict[str, list[dict[str, int]]] = {}
    for node in _walk(tree):
        match node:
            case nodes.Assign():
                for target in _targets(node.target):
                    flows.setdefault(target, []).append(_flow(node.node))
            case nodes.AssignBlock():
                flows.setdefault(_targets(node.target)[0], []).append(_doubled(_block_flow(node)))
            case nodes.For():
                for target in _targets(node.target):
                    flows.setdefault(target, []).append(_flow(node.iter))
    reach = _reachability({name: set().union(*map(set, sources)) for name, sources in flows.items()})
    for target, sources in flows.items():
        cycle = {name for name in reach.get(target, ()) if target in reach.get(name, ())}
        if any(sum(times for name, times in source.items() if name in cycle) > 1 for source in sources):
            return False
    return not any(_feeds_itself(loop, reach) for loop in tree.find_all(nodes.For))


def _feeds_itself(loop: nodes.For, reach: dict[str, set[str]]) -> bool:
    """Tell whether a loop runs over something that its own body lengthens."""
    over = set(_flow(loop.iter))
    for node in loop.find_all(nodes.Assign):
        for target in _targets(node.target):
            if over & ({target} | reach.get(target, set())) and any(
                target == name or target in reach.get(name, ()) for name in over
            ):
                return True
    return False


def _targets(node: nodes.Node) -> list[str]:
    if isinstance(node, nodes.NSRef):
        return [f"{node.name}.{node.attr}"]
    return [child.name for child in _walk(node) if isinstance(child, nodes.Name)]


def _flow(node: nodes.Node) -> dict[str, int]:
    """Count how often the value of each variable can go into an expression's value."""
    match node:
        case nodes.Name(name=name):
            return {name: 1}
        case nodes.Getattr(node=nodes.Name(name=name), attr=attr):
            return {f"{name}.{attr}": 1, name: 1}
        case nodes.Compare() | nodes.Test() | nodes.Not() | nodes.Filter(name="length" | "count" | "int"):
            return {}
        case nodes.CondExpr():
            return _most(node.expr1, node.expr2)
        case nodes.And() | nodes.Or():
            return _most(node.left, node.right)
        case nodes.Getitem():
            return _flow(node.node)
        case nodes.Filter(name=name) if name in _GROWING_FILTERS:
            return _doubled(_sum(node))
        case nodes.Call(node=nodes.Getattr(node=owner, attr=attr)) if attr in _GROWING_METHODS:
            return _doubled(_sum(node, owner))
        case nodes.Call(node=nodes.Getattr(node=owner)):
            return _flow(owner)
        case nodes.Call(node=nodes.Name(name=name)) if name not in ("namespace", "dict"):
            return _doubled(_sum(node))
        case _:
            return _sum(node)


def _block_flow(node: nodes.AssignBlock) -> dict[str, int]:
    counts: dict[str, int] = {}
    for output in node.find_all(nodes.Output):
        for name, times in _sum(output).items():
            counts[name] = counts.get(name, 0) + times
    return counts


def _sum(*parents: nodes.Node) -> dict[str, int]:
    counts: dict[str, int] = {}
    for parent in parents:
        for child in parent.iter_child_nodes():
            for name, times in _flow(child).items():
                counts[name] = counts.get(name, 0) + times
    return counts


def _most(*choices: nodes.Node | None) -> dict[str, int]:
    counts: dict[str, int] = {}
    for choice in choices:
        for name, times in _flow(choice).items() if choice is not None else ():
            counts[name] = max(counts.get(name, 0), times)
    return counts


def _doubled(counts: dict[str, int]) -> dict[str, int]:
    return {name: 2 * times for name, times in counts.items()}


def _reachability(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return for each variable those whose values can reach it."""
    reach: dict[str, set[str]] = {}
    for start in edges:
        seen: set[str] = set()
        open_ = [start]
        while open_:
            for name in edges.get(open_.pop(), ()):
                if name not in seen:
                    seen.add(name)
                    open_.append(name)
        reach[start] = seen
    return reach
