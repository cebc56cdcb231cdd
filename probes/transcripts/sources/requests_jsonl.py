"""JSONL in which each line is a recorded request: see `record.py` for the shapes of a line."""

from __future__ import annotations

from collections.abc import Iterator

from ...conversation import Dialect, Request
from ...errors import InputError
from ..apis import first_told
from ..base import Format
from ..json_text import parse_object
from ..record import Earlier, is_record, read_record, told_by_record
from ..source import Source


def _told(source: Source) -> Iterator[Dialect | None]:
    """Yield what each line tells of its dialect, up to the first that cannot be read."""
    try:
        for line, text in source.lines():
            yield told_by_record(parse_object(text, source.label, line))
    except InputError:
        return


def _dialect(source: Source) -> Dialect:
    return first_told(_told(source))


def _read(source: Source, dialect: Dialect) -> Iterator[Request]:
    earlier = Earlier(dialect)
    for line, text in source.lines():
        yield read_record(parse_object(text, source.label, line), earlier, f"{source.label}:{line}")


FORMAT = Format("requests_jsonl", is_record, _dialect, _read)
