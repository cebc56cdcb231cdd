"""JSONL in which each line is a recorded request: see `record.py` for the shapes of a line."""

from __future__ import annotations

from collections.abc import Iterator

from ..conversation import Request
from .base import Format
from .json_text import parse_object
from .record import is_record, read_record
from .source import Source


def _read(source: Source) -> Iterator[Request]:
    request = None
    for line, text in source.lines():
        request = read_record(parse_object(text, source.label, line), request, f"{source.label}:{line}")
        yield request


FORMAT = Format("requests_jsonl", "openai-chat", is_record, _read)
