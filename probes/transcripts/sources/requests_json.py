"""One JSON document, on as many lines as it likes: an object with `requests`, or a single recorded request.

A document is parsed as a whole at each reading; its requests are handed out and let go one after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...conversation import Dialect, Request
from ...errors import InputError
from ..apis import first_told
from ..base import Format
from ..json_text import kind, parse_object
from ..record import Earlier, read_record, told_by_record
from ..source import Source
from ..unread import refuse_unread


def _dialect(source: Source) -> Dialect:
    return first_told(told_by_record(record) for record in _records(source) if isinstance(record, dict))


def _read(source: Source, dialect: Dialect) -> Iterator[Request]:
    earlier = Earlier(dialect)
    records = _records(source)
    records.reverse()
    number = 0
    while records:
        number += 1
        where = f"{source.label}: request {number}"
        record = records.pop()
        if not isinstance(record, dict):
            raise InputError(f"a request is {kind(record)}", where=where, fix="write an object with messages")
        yield read_record(record, earlier, where)


def _records(source: Source) -> list[Any]:
    document = parse_object(source.text(), source.label)
    refuse_unread(document, source.label)
    records = document.get("requests", [document])
    if not isinstance(records, list) or not records:
        raise InputError(
            f"requests is {kind(records)}" if records else "requests is empty",
            where=source.label,
            fix="write a list of at least one request",
        )
    return records


FORMAT = Format("requests_json", lambda document: "requests" in document, _dialect, _read)
