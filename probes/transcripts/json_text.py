"""JSON text to values, strictly: what a server would refuse is refused here, with the place and a way out.

- `NaN`, `Infinity` and numbers beyond a float's range are no JSON (RFC 8259, section 6) and are refused.
- Nesting is bounded, so that nothing later recurses too deep; the bound is serde_json's default.
- Of duplicate keys the last one counts, as in Python's json.
- A lone surrogate (an escape such as `\\ud83d` without its other half, which clients send when they cut an
  emoji in two: anthropics/claude-code#6273) can neither be written as UTF-8 nor tokenised. It becomes U+FFFD,
  as it does wherever a browser encodes a string (WHATWG's USVString conversion); the length in characters
  stays.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from ..errors import InputError

MAX_DEPTH = 128
"""The deepest nesting of objects and arrays that is read."""

_SURROGATE = re.compile(r"[\ud800-\udfff]")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_object(text: str, label: str, line: int | None = None) -> dict[str, Any]:
    """Return the JSON object that `text` is.

    Args:
        text: the JSON text.
        label: the file's name for messages to people.
        line: the number of the line that `text` is, or None where it is the whole file.

    Raises:
        InputError: it is no JSON text, no object, nested too deep, or holds a number that cannot be read.
    """
    where = label if line is None else f"{label}:{line}"
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        said = error.msg[:1].lower() + error.msg[1:].removesuffix(" at")
        raise InputError(
            f"broken JSON, {said} at column {error.colno}",
            where=f"{label}:{(line or 1) + error.lineno - 1}",
            fix="repair the line, or remove it",
        ) from None
    except _NotFiniteError as error:
        raise InputError(f"{error} is not a JSON number", where=where, fix="write null or a string") from None
    except ValueError:
        # Python's own bound on the digits of an int (sys.set_int_max_str_digits).
        raise InputError(
            "an integer has too many digits to be read", where=where, fix="write it as a string"
        ) from None
    except RecursionError:
        raise _too_deep(where) from None
    if text.count("{") + text.count("[") > MAX_DEPTH and _deeper_than(value, MAX_DEPTH):
        raise _too_deep(where)
    if not isinstance(value, dict):
        raise InputError(
            f"this is {kind(value)}, not a JSON object",
            where=where,
            fix="write one message or one request on each line",
        )
    result: dict[str, Any] = _without_surrogates(value) if _SURROGATE_ESCAPE.search(text) else value
    return result


def is_unfinished(text: str) -> bool:
    """Whether `text` is the beginning of a JSON object whose rest stands on later lines.

    A string cannot run over a line's end, so a text that breaks off within one is broken, not unfinished.
    """
    try:
        _DECODER.decode(text)
    except json.JSONDecodeError as error:
        return text.startswith("{") and error.pos == len(text)
    except (ValueError, RecursionError):
        return False
    return False


def kind(value: object) -> str:
    """Name a JSON value's type for people, with its article."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case int() | float():
            return "a number"
        case list():
            return "an array"
        case _:
            return "an object"


class _NotFiniteError(ValueError):
    pass


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _NotFiniteError(text)
    return value


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


def _too_deep(where: str) -> InputError:
    return InputError(
        f"JSON is nested more than {MAX_DEPTH} levels deep", where=where, fix="flatten it or remove the line"
    )


def _deeper_than(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit + 1):
        level = [
            child
            for parent in level
            if isinstance(parent, dict | list)
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
        if not level:
            return False
    return True


def _without_surrogates(value: Any) -> Any:
    match value:
        case str():
            return _SURROGATE.sub("\ufffd", value)
        case list():
            return [_without_surrogates(item) for item in value]
        case dict():
            return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
        case _:
            return value
