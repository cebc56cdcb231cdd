"""Reading the small text, JSON and TOML files that a model or a person brings: with an error for people."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import IO, Any

from .errors import InputError

_MAX_BYTES = 20_000_000


def read_text(path: Path) -> str:
    """Read a text file that a model brings.

    Raises:
        InputError: it is missing, unreadable, absurdly large or not UTF-8 text.
    """
    try:
        with path.open("rb") as file:
            return read_stream(file, str(path))
    except OSError as error:
        raise unreadable(error, str(path)) from None


def unreadable(error: OSError, where: str) -> InputError:
    """Return what to raise for a file that cannot be opened or read."""
    return InputError((error.strerror or "cannot be read").lower(), where=where, fix="check the path")


def read_stream(file: IO[bytes], where: str) -> str:
    """Read the text of an open file.

    Raises:
        InputError: it is absurdly large or not UTF-8 text.
    """
    data = file.read(_MAX_BYTES + 1)  # and no more: it may be a device
    if b"\0" in data:
        raise InputError("a binary file, not a template", where=where, fix="give a .jinja file")
    if len(data) > _MAX_BYTES:
        raise InputError("too large to be a template or configuration", where=where)
    try:
        return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise InputError("not UTF-8 text", where=where, fix="give a template or a model directory") from None


def read_toml(path: Path, see: str) -> dict[str, Any]:
    """Read a TOML file that a person wrote.

    Args:
        path: the file.
        see: what explains its form.

    Raises:
        InputError: it cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise unreadable(error, str(path)) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"not a TOML file ({error})", where=str(path), fix=see) from None


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file.

    Raises:
        InputError: as `read_text`, or it is not a JSON object.
    """
    try:
        value = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        raise InputError(
            f"not valid JSON ({getattr(error, 'msg', 'nested too deeply')})",
            where=f"{path}:{line}" if line else str(path),
            fix="repair or download the file again",
        ) from None
    if not isinstance(value, dict):
        raise InputError("not a JSON object", where=str(path), fix="repair or download the file again")
    return value
