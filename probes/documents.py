"""Reports as JSON documents, and files of settings or results as values of a type."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import date, datetime
from typing import Any, TypeVar

from .. import __version__
from .errors import InputError

T = TypeVar("T")
#: Types of TOML that JSON lacks; a text is none of them.
_DATES = (date, datetime)
#: What msgspec says of a value that does not fit, and where in the document that stands.
_SAID = re.compile(r"(?P<what>.*?)(?: - at `(?:key in )?\$\.?(?P<field>.*?)`)?", re.DOTALL)


def plain(report: object) -> dict[str, Any]:
    """Return a report, which is a dataclass, as plain JSON types; the names are those of its attributes."""
    import msgspec

    value: dict[str, Any] = _plain(msgspec.to_builtins(report, str_keys=True))
    return value


def _plain(value: Any) -> Any:
    """Return what JSON has a form for: lists for tuples, and nothing for what is no number."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def several(schema: str, results: Iterable[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Return the results of several inputs as one document.

    Args:
        schema: name and version of the document's form, which is that of each result.
        results: a document for each input.
        more: what else the document says at its top.
    """
    return {"schema": schema, "tplaudit": __version__, **more, "results": list(results)}


def typed(value: Any, kind: type[T], where: str, fix: str) -> T:
    """Return what a file holds as a value of a type.

    Args:
        value: the plain data that was read.
        kind: a msgspec.Struct.
        where: the file, and which part of it.
        fix: what a person can do where the data does not fit.

    Raises:
        InputError: the data does not fit; it names the field.
    """
    import msgspec

    try:
        return msgspec.convert(value, kind, builtin_types=_DATES)
    except msgspec.ValidationError as error:
        said = _SAID.fullmatch(str(error))
        what, field = (said["what"], said["field"]) if said else (str(error), None)
        what = f"{what[:1].lower()}{what[1:]}"
        raise InputError(f"{field}: {what}" if field else what, where=where, fix=fix) from None
