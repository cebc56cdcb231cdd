"""The bundled models, which have names instead of paths wherever a model is named."""

from __future__ import annotations

from pathlib import Path

from ...fixtures import BUNDLED_MODELS
from ..errors import UsageError


def bundled_model(name: str) -> Path | None:
    """Return the folder with a bundled model's config.json; None for any other name.

    A file or directory called `bundled` is `./bundled`.

    Raises:
        UsageError: there is none of that kind.
    """
    if name.partition(":")[0] != "bundled":
        return None
    if name not in BUNDLED_MODELS:
        raise UsageError(
            f"there is no bundled model {name!r}",
            fix=f"choose from {', '.join(BUNDLED_MODELS)}, or write ./{name} for a path",
        )
    return BUNDLED_MODELS[name]
