"""The Jinja environment that chat templates run in, set up as transformers sets it up.

Source: `transformers/utils/chat_template_utils.py` of huggingface/transformers 5.24; tests compare with it.
See docs/rendering.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextvars import ContextVar
from datetime import datetime
from functools import lru_cache
from types import CodeType
from typing import Any

import jinja2.ext
from jinja2 import Template, nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from .code import LosingCode, TemplateCode

clock: ContextVar[datetime | None] = ContextVar("clock", default=None)
#: Whether the template that runs may change lists, as llama.cpp's engine lets it.
changes: ContextVar[bool] = ContextVar("changes", default=False)

#: What `getattr` finds on every dict.
_OF_DICTS = frozenset(dir(dict))
#: Methods of lists in llama.cpp's engine that change them.
_CHANGES = ("append", "pop")
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
    return (clock.get() or datetime.now()).strftime(format)


def tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON without escaping HTML, as chat templates expect."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox, with two shortcuts through its rules that change nothing."""

    code_generator_class = TemplateCode

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._safe: dict[tuple[type, str], bool] = {}

    def compile_tree(self, tree: nodes.Template) -> Template:
        """Compile a parsed template."""
        code: CodeType = self.compile(tree, "<template>", "<template>")
        return self.template_class.from_code(self, code, self.make_globals(None), None)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return an attribute, else an item: the sandbox's rule, without its detour for a dict's keys."""
        if type(obj) is dict and attribute not in _OF_DICTS:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Tell whether a template may have an attribute, which depends on the object's type alone."""
        if attr in _CHANGES and type(obj) is list and changes.get():
            return True
        kind = (type(obj), attr)
        safe = self._safe.get(kind)
        if safe is None:
            safe = super().is_safe_attribute(obj, attr, value)
            if len(self._safe) < _MOST_KINDS:
                self._safe[kind] = safe
        return safe


class LlamaUndefined(jinja2.ChainableUndefined):
    """What is not there: its methods give nothing, and so do keys of it."""

    def __call__(self, *_: Any, **__: Any) -> LlamaUndefined:  # type: ignore[override]
        """Return what a method of it returns: nothing."""
        return self


class LlamaEnvironment(TemplateEnvironment):
    """The same with manners of llama.cpp's own engine, as far as templates depend on them."""

    code_generator_class = LosingCode


def written(value: Any) -> Any:
    """Return what llama.cpp's engine writes of a value: nothing of dicts and None, of lists their items."""
    if isinstance(value, list | tuple):
        return "".join(str(written(item)) for item in value)
    return "" if value is None or isinstance(value, dict) else value


@lru_cache(maxsize=2)
def environment(profile: str = "transformers") -> TemplateEnvironment:
    """Return the one environment of a profile; templates share it as they do in transformers."""
    settings: dict[str, Any] = {
        "trim_blocks": True,
        "lstrip_blocks": True,
        "extensions": [GenerationTag, jinja2.ext.loopcontrols],
    }
    env = (
        LlamaEnvironment(**settings, undefined=LlamaUndefined, finalize=written)
        if profile == "llama.cpp"
        else TemplateEnvironment(**settings)
    )
    env.filters["tojson"] = tojson
    env.globals.update(
        raise_exception=raise_exception,
        strftime_now=strftime_now,
        dict=TemplateDict(),
        namespace=TemplateNamespace,
    )
    return env


@lru_cache(maxsize=1)
def bare_environment() -> TemplateEnvironment:
    """Return the sandbox that servers set up for tests of their own, without what transformers adds to it."""
    return TemplateEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
