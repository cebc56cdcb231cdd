"""The order in which a server saw the requests of a recording."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from datetime import datetime

from ...conversation import Request
from ...errors import InputError

#: Requests that may stand in the file before one that arrived earlier: a log is written as they end.
_WINDOW = 256


def in_order_of_arrival(requests: Iterable[Request]) -> Iterator[tuple[int, Request]]:
    """Yield requests with their numbers in the file, from 1, by their times of arrival.

    Without times, line by line. A request without a time arrived with the one before it in the file. What
    cannot be read any more ends it, after the requests before that place.
    """
    numbered = enumerate(requests, 1)
    first = next(numbered, None)
    if first is None:
        return
    if first[1].sent is None:
        yield first
        yield from numbered
        return
    waiting: list[tuple[float, int, Request]] = [(_seconds(first[1].sent), *first)]
    failure: InputError | None = None
    last = waiting[0][0]
    try:
        for number, request in numbered:
            last = last if request.sent is None else _seconds(request.sent)
            heapq.heappush(waiting, (last, number, request))
            if len(waiting) > _WINDOW:
                _, number, request = heapq.heappop(waiting)
                yield number, request
    except InputError as error:
        failure = error
    while waiting:
        _, number, request = heapq.heappop(waiting)
        yield number, request
    if failure is not None:
        raise failure


def _seconds(moment: datetime) -> float:
    return moment.timestamp()
