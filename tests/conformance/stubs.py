"""Modules that stand in for what a server imports and this machine does not have."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.metadata
import sys
import types
from collections.abc import Sequence
from typing import Any, ClassVar
from unittest.mock import MagicMock

#: What a stubbed package says of its version: newer than what servers ask for.
_VERSION = "2.99.0"


class _Stub(types.ModuleType):
    """A module in which every name is there: a class that may be subclassed, called and subscripted."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return _VERSION
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (_Anything,), {"__module__": self.__name__})
        setattr(self, name, made)
        return made


class _AnyMeta(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=f"{cls.__name__}.{name}")

    def __or__(cls, other: Any) -> Any:
        return Any

    __ror__ = __or__


class _Anything(metaclass=_AnyMeta):
    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __init_subclass__(cls, **_: Any) -> None:
        pass

    def __post_init__(self) -> None:
        pass

    def __class_getitem__(cls, _: Any) -> Any:
        return cls

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: Any) -> Any:
        return {"type": "any"}  # a field of a stubbed class takes whatever comes

    def __call__(self, *given: Any, **_: Any) -> Any:
        return given[0] if given else MagicMock()  # as a decorator it changes nothing

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, roots: Sequence[str]) -> None:
        self.roots = tuple(roots)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if any(fullname == root or fullname.startswith(f"{root}.") for root in self.roots):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Stub(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def stub(*roots: str) -> None:
    """Let these modules, and all within them, be stubs, whether they are installed or not."""
    sys.meta_path.insert(0, _Finder(roots))
    version = importlib.metadata.version
    importlib.metadata.version = lambda name: _VERSION if name in roots else version(name)
