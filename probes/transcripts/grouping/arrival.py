"""The order in which a server saw the requests of a recording."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from ...conversation import Request
from ...errors import InputError
from .conversations import Continuation, Conversations

#: Requests that may stand in the file before one that arrived earlier: a log is written as they end.
_WINDOW = 256


def in_order_of_arrival(
    requests: Iterable[Request], conversations: Conversations
) -> Iterator[tuple[Continuation, Request]]:
    """Yield requests by their times of arrival, each with what it continues.

    What a request continues is told line by line, and a request never comes before that. Without times all is
    line by line. A request without a time arrived with the one before it in the file. What cannot be read any
    more ends it, after the requests before that place.

    Args:
        requests: the requests, in the order of the file.
        conversations: tells what each continues.
    """
    arrived: dict[int, float] = {}
    waiting: list[tuple[float, int, Continuation, Request]] = []
    failure: InputError | None = None
    last: float | None = None
    try:
        for number, written in enumerate(requests, 1):
            request, continuation = conversations.add(number, written)
            if request.sent is not None:
                last = request.sent.timestamp()
            if last is None:
                yield continuation, request
                continue
            arrived[number] = max(last, arrived.get(continuation.predecessor or 0, last))
            heapq.heappush(waiting, (arrived[number], number, continuation, request))
            if len(waiting) > _WINDOW:
                *_, continuation, request = heapq.heappop(waiting)
                yield continuation, request
    except InputError as error:
        failure = error
    while waiting:
        *_, continuation, request = heapq.heappop(waiting)
        yield continuation, request
    if failure is not None:
        raise failure
