"""Where a transcript's bytes come from: a file, a pipe or stdin, always readable again from the beginning."""

from __future__ import annotations

import atexit
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..errors import InputError

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """A regular file that holds a transcript, and what to call it in messages to people.

    Attributes:
        path: the file to read.
        label: the path as the person gave it, or `stdin`.
    """

    path: Path
    label: str

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the lines that are not blank, each with its number counted from 1, one in memory at a time.

        Lines end with a line feed; white space and byte order marks around a line are dropped, so that CRLF
        files and files put together from others read alike.

        Raises:
            InputError: the file cannot be read or a line is not UTF-8 text.
        """
        with _readable(self.label), self.path.open("rb") as file:
            # A large binary file may have no line's end for gigabytes.
            if b"\0" in file.peek(1).partition(b"\n")[0]:
                raise _binary(f"{self.label}:1")
            for number, raw in enumerate(file, 1):
                if text := _decode(raw, f"{self.label}:{number}").strip(" \t\r\n\ufeff"):
                    yield number, text

    def text(self) -> str:
        """Return the whole text with its line numbering intact.

        Raises:
            InputError: the file cannot be read or is not UTF-8 text.
        """
        with _readable(self.label):
            return _decode(self.path.read_bytes(), self.label).lstrip("\ufeff")


def open_source(name: str | Path) -> Source:
    """Return the source of that name; a stream (`-`, a named pipe) is first copied to a temporary file.

    The copy is what several passes and processes then read; it is deleted when this process ends.

    Args:
        name: a path, or `-` for stdin.

    Raises:
        InputError: there is no such file, it is a directory, it cannot be read, or a stream is binary.
    """
    if str(name) == "-":
        if sys.stdin is None:
            raise InputError("stdin is closed", fix="name a transcript file")
        return Source(_spool(sys.stdin.buffer, "stdin"), "stdin")
    path = Path(name)
    # A file name need not be valid UTF-8, a message to people must be.
    label = os.fsencode(path).decode("utf-8", "replace")
    with _readable(label):
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise InputError("this is a directory", where=label, fix="name a transcript file in it")
        if not stat.S_ISREG(mode):
            with path.open("rb") as stream:
                return Source(_spool(stream, label), label)
    return Source(path, label)


def _spool(stream: BinaryIO, label: str) -> Path:
    descriptor, name = tempfile.mkstemp(prefix="tplaudit-", suffix=".transcript")
    path = Path(name)
    atexit.register(_remove, path, os.getpid())
    with _readable(label), os.fdopen(descriptor, "wb") as file:
        while chunk := stream.read(_CHUNK):
            # An endless binary stream must not fill the disk first.
            if b"\0" in chunk:
                raise _binary(label)
            file.write(chunk)
    return path


def _remove(path: Path, owner: int) -> None:
    # A forked child runs the handlers of its parent, which still needs the file.
    if os.getpid() == owner:
        path.unlink(missing_ok=True)


def _decode(raw: bytes, where: str) -> str:
    if b"\0" in raw:
        raise _binary(where)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"byte {error.start + 1} is not UTF-8 text", where=where, fix="save the transcript as UTF-8"
        ) from None


def _binary(where: str) -> InputError:
    return InputError(
        "this is binary data, not UTF-8 text",
        where=where,
        fix="give a JSON or JSONL file; decompress it or convert it to UTF-8 first",
    )


@contextmanager
def _readable(label: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise InputError("there is no such file", where=label, fix="check the path") from None
    except PermissionError:
        raise InputError("no permission to read this file", where=label, fix="change its mode") from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", where=label) from None
