"""The messages between this process and the ones that foreign code is confined to.

A message is its length and a value in Python's `marshal` form: both ends are the same Python, and unlike JSON
and msgpack it keeps large integers and half surrogate pairs, which requests and templates may hold.
"""

from __future__ import annotations

import marshal
import struct
from collections.abc import Mapping
from typing import IO, Any

#: Without references to earlier values of a message, so that equal values have equal bytes.
_VERSION = 2
_LENGTH = struct.Struct("<Q")
LENGTH_BYTES = _LENGTH.size

_SCALARS = frozenset({str, int, float, bool, type(None)})


def plain(value: Any) -> Any:
    """Copy a value as plain JSON types, so that no object is shared and none has methods of its own."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is dict or isinstance(value, Mapping):
        return {
            key if type(key) is str else plain(key): item if type(item) in _SCALARS else plain(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [item if type(item) in _SCALARS else plain(item) for item in value]
    for base in (str, int, float):
        if isinstance(value, base):
            return base(value)
    return f"<{type(value).__name__}>"


def dumps(value: Any) -> bytes:
    """Return a value's bytes. Raises RecursionError where it is nested too deeply."""
    try:
        return marshal.dumps(value, _VERSION)
    except ValueError:  # other types than Python's own, or too deep
        try:
            return marshal.dumps(plain(value), _VERSION)
        except ValueError:
            raise RecursionError("the value is nested too deeply") from None


def loads(data: bytes | memoryview) -> Any:
    """Return the value of what `dumps` returned."""
    return marshal.loads(data)


def framed(data: bytes) -> bytes:
    """Return a message as it goes through a pipe."""
    return _LENGTH.pack(len(data)) + data


def length(header: bytes | bytearray | memoryview) -> int:
    """Return how many bytes a message has behind its first `LENGTH_BYTES`."""
    return int(_LENGTH.unpack_from(header)[0])


def read(stream: IO[bytes]) -> bytes | None:
    """Read one message; None at the end of the stream, also in the middle of a message."""
    header = stream.read(LENGTH_BYTES)
    if len(header) < LENGTH_BYTES:
        return None
    size = length(header)
    data = stream.read(size)
    return data if len(data) == size else None
