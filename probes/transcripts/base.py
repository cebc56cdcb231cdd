"""What a transcript format is: how it is told from the others, and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..conversation import Dialect, Request
from .source import Source


@dataclass(frozen=True, slots=True)
class Format:
    """One way in which transcripts are stored.

    Its functions are module-level, so that a file's transcript pickles.

    Attributes:
        name: the format's name, that of its module.
        claims: whether a file whose first JSON value is this object is of this format.
        dialect: returns the wire format of a file's requests, after a look at its beginning; a document that
            is parsed as a whole may be found wrong then, with InputError.
        read: yields the requests in order, from the beginning, each as soon as its lines are read; raises
            InputError where the file is wrong or a request is of another dialect, after the requests before
            that place.
    """

    name: str
    claims: Callable[[Mapping[str, Any]], bool]
    dialect: Callable[[Source], Dialect]
    read: Callable[[Source, Dialect], Iterator[Request]]
