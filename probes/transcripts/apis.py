"""Which API a transcript's requests were sent to. All requests of a transcript are of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from ..conversation import Dialect
from . import anthropic_messages, chat, responses
from .api import Api

APIS: Mapping[Dialect, Api] = {api.dialect: api for api in (anthropic_messages.API, responses.API, chat.API)}
"""Every API whose requests are read; an object that several tell as theirs is the first one's."""

#: How many requests, or messages, are looked at for the API that they were written for. Short requests, such
#: as those with which a client looks whether it may send more, can be of more than one.
_LOOK_AHEAD = 16


def told_by_body(body: Mapping[str, Any]) -> Dialect | None:
    """Return the dialect of a request body, or None where it could be one or the other."""
    return next((api.dialect for api in APIS.values() if api.tells(body)), None)


def told_by_path(url: Any) -> Dialect | None:
    """Return the dialect of requests that are sent to an address, or None where it does not say."""
    path = url.partition("?")[0].rstrip("/") if isinstance(url, str) else ""
    return next((api.dialect for api in APIS.values() if path.endswith(api.paths)), None)


def first_told(told: Iterable[Dialect | None]) -> Dialect:
    """Return the first dialect that one of a transcript's first records tells; else that of OpenAI chat."""
    return next((dialect for dialect in islice(told, _LOOK_AHEAD) if dialect), chat.API.dialect)
