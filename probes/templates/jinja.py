"""The Jinja environment that chat templates run in, set up as transformers sets it up.

Source: `transformers/utils/chat_template_utils.py` of huggingface/transformers 5.24; tests compare with it.
See docs/rendering.md for what a template may do and how it is kept within bounds.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import datetime
from functools import lru_cache
from types import CodeType
from typing import Any

import jinja2.ext
import jinja2.meta
from jinja2 import Template, Undefined, nodes, pass_eval_context
from jinja2.compiler import Frame
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.filters import FILTERS
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range
from jinja2.utils import Namespace

from . import bounds
from .code import TemplateCode

clock: ContextVar[datetime | None] = ContextVar("clock", default=None)

#: Filters that cost about as much as reading what they are given.
PLAIN_FILTERS = frozenset(
    """count d default dictsort first float items last length list map max min reject rejectattr reverse
    select selectattr sort unique""".split()
)
#: The same, of those that write their operand as a text.
TEXT_FILTERS = frozenset("capitalize e escape forceescape lower safe string title upper".split())
#: Filters that have a check of their own below.
CHECKED_FILTERS = frozenset({"int", "join", "replace", "tojson", "trim"})
#: Tests that may take much longer than reading what they are given.
COSTLY_TESTS = frozenset({"divisibleby"})
#: Methods of texts, lists and dicts that templates may call inside this process.
METHODS = frozenset(
    """capitalize copy count endswith find get index isalnum isalpha isdigit islower isnumeric isspace isupper
    items join keys lower lstrip partition removeprefix removesuffix replace rfind rindex rpartition rsplit
    rstrip split splitlines startswith strip title upper values""".split()
)
#: Methods that the sandbox refuses to call, whatever they are given.
MUTATORS = frozenset("append clear extend insert pop popitem remove setdefault update".split())
#: Methods of `loop`.
LOOP_METHODS = frozenset({"changed", "cycle"})
#: Those that may look at their whole argument at each character of their text.
_SEARCHES = frozenset("lstrip rfind rindex rpartition rsplit rstrip strip".split())
_LONGEST_NEEDLE = 100
#: Those that turn each character into an object of some 50 bytes.
_SPLITTERS = frozenset("list rsplit split splitlines".split())
#: Most keys of a dict that a template makes from pairs.
_MOST_KEYS = 10_000
#: Longest text that is read as an integer.
_LONGEST_NUMBER = 10_000
#: Longest format of a time.
_LONGEST_FORMAT = 1_000
#: What `getattr` finds on every dict.
_OF_DICTS = frozenset(dir(dict))
#: Most attributes, each of one type, that are remembered as safe or not.
_MOST_KINDS = 10_000


class GenerationTag(jinja2.ext.Extension):
    """`{% generation %}…{% endgeneration %}`: brackets text and writes it unchanged."""

    tags = {"generation"}  # noqa: RUF012 - Jinja reads a plain class attribute

    def parse(self, parser: Any) -> nodes.CallBlock:
        """Parse the block up to its end tag."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        block = nodes.CallBlock(self.call_method("_write"), [], [], body)
        block.set_lineno(line)
        return block

    def _write(self, caller: Callable[[], str]) -> str:
        return caller()


class TemplateDict:
    """The `dict` of a chat template: it can be called and offers `fromkeys`, nothing else."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        """Return `dict(*args, **kwargs)`."""
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        """Return `dict.fromkeys(*args)`."""
        return dict.fromkeys(*args)


class TemplateNamespace(Namespace):
    """The `namespace` of a chat template: it refuses names that begin with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # like Jinja's: `namespace(self=…)` is legal
        self, args = args[0], args[1:]
        attributes = dict(*args, **kwargs)
        for name in attributes:
            _refuse_underscore(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_underscore(name)
        Namespace.__setitem__(self, name, value)


def _refuse_underscore(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace takes no attribute that begins with an underscore: {name!r}")


def raise_exception(message: Any) -> None:
    """Raise the error that a template asked for."""
    raise TemplateError(message)


def strftime_now(format: str) -> str:
    """Format the local time, or the pinned one."""
    if len(format) > _LONGEST_FORMAT:
        bounds.refuse()
    return (clock.get() or datetime.now()).strftime(format)


def tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON without escaping HTML, as chat templates expect."""
    bounds.check_json(value, indent, separators)
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


@pass_eval_context
def _join(context: nodes.EvalContext, value: Any, d: Any = "", attribute: Any = None) -> Any:
    if bounds.metered():
        value = list(value)
        bounds.check_join(value, d)
    return FILTERS["join"](context, value, d, attribute)


@pass_eval_context
def _replace(context: nodes.EvalContext, s: Any, old: Any, new: Any, count: Any = None) -> Any:
    bounds.check_replace(s, old, new)
    return FILTERS["replace"](context, s, old, new, count)


def _int(value: Any, default: Any = 0, base: int = 10) -> Any:
    if isinstance(value, str) and len(value) > _LONGEST_NUMBER:
        bounds.refuse()
    return FILTERS["int"](value, default, base)


def _trim(value: Any, chars: Any = None) -> Any:
    bounds.check_text(value)
    if isinstance(chars, str) and len(chars) > _LONGEST_NEEDLE:
        bounds.refuse()
    return FILTERS["trim"](value, chars)


def _filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap one of Jinja's filters so that it stays within bounds."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if name in TEXT_FILTERS:
            if type(args[0]) is not str:
                bounds.check_text(args[0])
        elif name in _SPLITTERS and isinstance(args[0], str):
            bounds.check_length(len(args[0]))
        elif name not in PLAIN_FILTERS:
            bounds.refuse()
        result = function(*args, **kwargs)
        bounds.charge(result)
        return result

    return wrapped


def _costly(function: Any) -> Any:
    @functools.wraps(function)
    def wrapped(*args: Any) -> Any:
        bounds.refuse()
        return function(*args)

    return wrapped


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox; inside this process each step that could run away is held within bounds (bounds.py)."""

    code_generator_class = TemplateCode
    intercepted_binops = frozenset({"+", "*", "**", "//", "%"})
    concat = staticmethod(bounds.concatenate)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._safe: dict[tuple[type, str], bool] = {}

    def compile_tree(self, tree: nodes.Template) -> Template:
        """Compile a parsed template."""
        code: CodeType = self.compile(tree, "<template>", "<template>")
        template = self.template_class.from_code(self, code, self.make_globals(None), None)
        # What the compiled code takes from jinja2.runtime and builtins.
        template.root_render_func.__globals__.update(
            built=bounds.built,
            str=bounds.text,
            str_join=bounds.join_texts,
        )
        return template

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return an attribute, else an item: the sandbox's rule, without its detour for a dict's keys."""
        if type(obj) is dict and attribute not in _OF_DICTS:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Tell whether a template may have an attribute, which depends on the object's type alone."""
        kind = (type(obj), attr)
        safe = self._safe.get(kind)
        if safe is None:
            safe = super().is_safe_attribute(obj, attr, value)
            if len(self._safe) < _MOST_KINDS:
                self._safe[kind] = safe
        return safe

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Apply `+`, `*`, `**`, `//` or `%`."""
        if type(left) is str and type(right) is str and operator == "+":  # most of all: no need to ask more
            bounds.check_length(len(left) + len(right))
            return left + right
        if bounds.metered():
            _check_operator(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function, macro or method."""
        if not bounds.metered():
            return super().call(context, function, *args, **kwargs)
        args = _check_call(function, args, kwargs)
        result = super().call(context, function, *args, **kwargs)
        bounds.charge(result)
        return result


def _check_operator(operator: str, left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        if operator != "+":
            bounds.check_integers(left, right, power=operator == "**")
    elif operator == "%" and isinstance(left, str):
        bounds.refuse()  # a format, which may name any width
    elif operator == "+":
        if isinstance(left, str) and isinstance(right, str):
            bounds.check_length(len(left) + len(right))
        bounds.charge(right)  # the left operand was charged when it was built
    elif operator == "*":
        for value, times in ((left, right), (right, left)):
            if isinstance(times, int):
                bounds.charge(value, times)
                if isinstance(value, str):
                    bounds.check_length(len(value) * times)


_FUNCTIONS = (safe_range, raise_exception, strftime_now)
_DICTS = (TemplateNamespace, Namespace, dict)


def _check_call(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Refuse a call that is not known to be bounded; return its arguments."""
    if isinstance(function, Macro):
        if function.catch_varargs or function.catch_kwargs:
            bounds.charge(args)
            bounds.charge(dict(kwargs))
        return args
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    if isinstance(owner, str | list | tuple | dict) and name in METHODS:
        return _check_method(owner, name, args)
    if (
        any(function is known for known in _DICTS)
        or isinstance(function, TemplateDict)
        or isinstance(owner, TemplateDict)
    ):
        return _check_keys(args)
    if not (
        any(function is known for known in _FUNCTIONS)
        or isinstance(function, LoopContext | Undefined)
        or (isinstance(owner, LoopContext) and name in LOOP_METHODS)
        or isinstance(owner, GenerationTag)
        or not callable(function)
    ):
        bounds.refuse()
    return args


def _check_method(owner: Any, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    if name == "join" and args:
        values = list(args[0])
        bounds.check_join(values, owner)
        return (values, *args[1:])
    if name == "replace" and len(args) > 1:
        bounds.check_replace(owner, *args[:2])
    if name in _SPLITTERS:
        bounds.check_length(len(owner))
    if name in _SEARCHES and args and isinstance(args[0], str) and len(args[0]) > _LONGEST_NEEDLE:
        bounds.refuse()
    return args


def _check_keys(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Refuse a dict of many keys, which may all have the same hash."""
    if args and not isinstance(args[0], dict):
        keys = list(args[0])
        if len(keys) > _MOST_KEYS:
            bounds.refuse()
        return (keys, *args[1:])
    return args


@lru_cache(maxsize=1)
def environment() -> TemplateEnvironment:
    """Return the one environment; templates share it as they do in transformers."""
    env = TemplateEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, jinja2.ext.loopcontrols]
    )
    env.filters = {name: _filter(name, function) for name, function in env.filters.items()}
    env.filters.update(int=_int, join=_join, replace=_replace, tojson=tojson, trim=_trim)
    for name in COSTLY_TESTS:
        env.tests[name] = _costly(env.tests[name])
    env.globals.update(
        raise_exception=raise_exception,
        strftime_now=strftime_now,
        dict=TemplateDict(),
        namespace=TemplateNamespace,
    )
    return env


class _NameTracker(jinja2.meta.TrackingCodeGenerator):
    """Jinja's own analysis of names, without folding constants: nothing of the template is computed."""

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        if isinstance(node, nodes.TemplateData):
            return super()._output_child_to_const(node, frame, finalize)
        raise nodes.Impossible


def undeclared_variables(tree: nodes.Template) -> frozenset[str]:
    """Return the names that a template takes from outside, by Jinja's own analysis."""
    tracker = _NameTracker(environment())
    tracker.optimizer = None
    tracker.visit(tree)
    return frozenset(tracker.undeclared_identifiers)
