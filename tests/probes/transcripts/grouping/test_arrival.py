from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from tplaudit.probes.conversation import Message, Request
from tplaudit.probes.errors import InputError
from tplaudit.probes.transcripts.grouping.arrival import in_order_of_arrival
from tplaudit.probes.transcripts.grouping.conversations import Conversations

START = datetime(2026, 1, 1, tzinfo=UTC)


def _request(second: float | None) -> Request:
    sent = None if second is None else START + timedelta(seconds=second)
    return Request((Message({"role": "user", "content": str(second)}, 0),), sent=sent)


def _numbers(*seconds: float | None) -> list[int]:
    return [each.turn for each, _ in in_order_of_arrival(map(_request, seconds), Conversations())]


def test_without_times_line_by_line() -> None:
    assert _numbers(None, None, None) == [1, 2, 3]
    assert _numbers() == []


def test_by_times_and_equal_times_line_by_line() -> None:
    assert _numbers(0, 3, 1, 1, 2) == [1, 3, 4, 5, 2]


def test_a_request_without_a_time_arrived_with_the_one_before_it() -> None:
    assert _numbers(0, 5, None, 1) == [1, 4, 2, 3]


def test_what_precedes_a_fault_is_still_yielded() -> None:
    def broken() -> Iterator[Request]:
        yield _request(2)
        yield _request(1)
        raise InputError("the line is cut off", where="file:3")

    seen = []
    with pytest.raises(InputError, match="cut off"):
        for each, _ in in_order_of_arrival(broken(), Conversations()):
            seen.append(each.turn)
    assert seen == [2, 1]


def test_long_recordings_are_read_as_they_are_replayed() -> None:
    read = 0

    def endless() -> Iterator[Request]:
        nonlocal read
        while True:
            read += 1
            yield _request(read)

    assert next(in_order_of_arrival(endless(), Conversations()))[0].turn == 1
    assert read < 1000


def test_a_request_never_comes_before_what_it_continues() -> None:
    start = {"role": "user", "content": "Go."}
    more = [{"role": "assistant", "content": "Gone."}, {"role": "user", "content": "Back."}]
    first = Request((Message(start, 0),), sent=START + timedelta(seconds=9))
    second = Request((Message(start, 0), *map(Message, more, (1, 2))), sent=START)
    found = [each for each, _ in in_order_of_arrival([first, second], Conversations())]
    assert [(each.turn, each.predecessor) for each in found] == [(1, None), (2, 1)]
