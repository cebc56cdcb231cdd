"""Transcript readers, one module per source format; `open_transcript` finds the right one."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ..conversation import Transcript
from ..errors import InputError
from .base import Format
from .json_text import is_unfinished, parse_object
from .source import Source, open_source
from .sources import messages_jsonl, requests_json, requests_jsonl
from .unread import refuse_unknown, refuse_unread

__all__ = ["FORMATS", "Format", "open_transcript"]

FORMATS: tuple[Format, ...] = (requests_json.FORMAT, requests_jsonl.FORMAT, messages_jsonl.FORMAT)
"""Every format that is read; the first one that claims a file's first object gets it."""

#: How no JSON begins.
_TEMPLATES_BEGIN = ("{%", "{{", "{#")


def open_transcript(path_or_dash: str | Path) -> Transcript:
    """Return the transcript of that name, after a look at its first lines.

    The requests are read anew at each iteration, a line at a time (a JSON document: as a whole), so iterating
    may raise InputError too, after the requests that precede the fault.

    Args:
        path_or_dash: a file, a named pipe, or `-` for stdin; streams are kept in a temporary file until this
            process ends.

    Raises:
        InputError: there is nothing to read, or its first line is of no format that is read.
    """
    source = open_source(path_or_dash)
    found = _detect(source)
    name = "-" if str(path_or_dash) == "-" else source.label
    dialect = found.dialect(source)
    return Transcript(name, dialect, partial(found.read, source, dialect), found.name)


def _detect(source: Source) -> Format:
    lines = source.lines()
    line, text = next(lines, (0, ""))
    if not text:
        raise InputError(
            "the file is empty", where=source.label, fix="give a transcript with at least one request"
        )
    try:
        record = parse_object(text, source.label, line)
    except InputError:
        # A cut-off first line of JSONL is unfinished too, but then the next line begins a new object.
        _refuse_template(source, text)
        follows = next(lines, (0, ""))[1]
        if is_unfinished(text) and (text[-1] in "{[,:" or not follows.startswith("{")):
            return requests_json.FORMAT
        raise
    where = f"{source.label}:{line}"
    refuse_unread(record, where)
    for candidate in FORMATS:
        if candidate.claims(record):
            return candidate
    refuse_unknown(where)


def _refuse_template(source: Source, text: str) -> None:
    """Raise InputError where a text that is no JSON belongs to a chat template; return otherwise."""
    from ..models.template_files import TEMPLATE_SUFFIXES  # brings Jinja

    if text.startswith(_TEMPLATES_BEGIN) or source.label.endswith(TEMPLATE_SUFFIXES):
        what = "this is a chat template, not a transcript"
        fix = "give it with --template, and a transcript in its place"
        raise InputError(what, where=source.label, fix=fix)
