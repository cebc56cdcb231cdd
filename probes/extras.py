"""What is installed beyond the dependencies that every installation has: mlx-lm and transformers.

Both come with the extra `mlx`, and always on Apple silicon. Nothing is imported here to find that out.
"""

from __future__ import annotations

import importlib.util
import sys

from .errors import UsageError

#: What to do where they are missing, one clause.
INSTALL = "install tplaudit with its extra: tplaudit[mlx]"


def has_transformers() -> bool:
    """Tell whether transformers is installed."""
    return _is_installed("transformers")


def has_mlx() -> bool:
    """Tell whether a model can be run: mlx and mlx-lm are installed."""
    return _is_installed("mlx") and _is_installed("mlx_lm")


def check_mlx(where: str) -> None:
    """See that a model can be run. Raises UsageError where it cannot.

    Args:
        where: the option or command that asks for it.
    """
    if not has_mlx():
        raise UsageError("a model runs with mlx-lm, which is not installed", where=where, fix=INSTALL)


def _is_installed(name: str) -> bool:
    if name in sys.modules:  # None stands there for a package that is kept from being imported
        return sys.modules[name] is not None
    return importlib.util.find_spec(name) is not None
