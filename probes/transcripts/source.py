"""Where a transcript's bytes come from: a file, a pipe or stdin, always readable again from the beginning."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO

from ..errors import InputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """The bytes of a transcript, and what to call them in messages to people.

    Attributes:
        open: starts reading them from the beginning.
        label: the path as the person gave it, or `stdin`.
    """

    open: Callable[[], BufferedReader]
    label: str

    def lines(self, *, strict: bool = True) -> Iterator[tuple[int, str]]:
        """Yield the lines that are not blank, each with its number counted from 1, one in memory at a time.

        Lines end with a line feed; white space and byte order marks around a line are dropped, so that CRLF
        files and files put together from others read alike.

        Args:
            strict: whether a line must be UTF-8 text; else what is none of it is replaced.

        Raises:
            InputError: the file cannot be read, is binary, or a line is not UTF-8 text where it must be.
        """
        with _readable(self.label), self.open() as file:
            # A large binary file may have no line's end for gigabytes.
            if b"\0" in file.peek(1).partition(b"\n")[0]:
                raise _binary(f"{self.label}:1")
            for number, raw in enumerate(file, 1):
                where = f"{self.label}:{number}"
                text = _decode(raw, where) if strict or b"\0" in raw else raw.decode("utf-8", "replace")
                if text := text.strip(" \t\r\n\ufeff"):
                    yield number, text

    def text(self) -> str:
        """Return the whole text with its line numbering intact.

        Raises:
            InputError: the file cannot be read or is not UTF-8 text.
        """
        with _readable(self.label), self.open() as file:
            return _decode(file.read(), self.label).lstrip("\ufeff")


def open_source(name: str | Path) -> Source:
    """Return the source of that name; a stream (`-`, a named pipe) is first copied to a temporary file.

    The copy is what several passes then read. It has no name, so that no other program finds it and nothing
    of it stays behind, however this process ends.

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
    return Source(partial(_open, path), label)


def _open(path: Path) -> BufferedReader:
    return path.open("rb")


def _spool(stream: BinaryIO, label: str) -> Callable[[], BufferedReader]:
    """Copy a stream to a temporary file without a name, and return what opens that from the beginning."""
    with _readable(label):
        file = tempfile.TemporaryFile()  # noqa: SIM115 - it is read as long as the source lives
        while chunk := stream.read(_CHUNK):
            # An endless binary stream must not fill the disk first.
            if b"\0" in chunk:
                raise _binary(label)
            file.write(chunk)
        file.flush()
    return lambda: BufferedReader(_Copy(file))


class _Copy(RawIOBase):
    """A reader of an open file with a position of its own."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        read = os.pread(self._file.fileno(), len(view), self._position)
        view[: len(read)] = read
        self._position += len(read)
        return len(read)


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
