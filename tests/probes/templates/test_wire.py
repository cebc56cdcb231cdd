from collections import OrderedDict
from enum import StrEnum
from io import BytesIO
from typing import Any

import pytest
from tplaudit.probes.templates import wire


class Role(StrEnum):
    USER = "user"


def test_messages_of_a_stream_end_where_it_breaks_off() -> None:
    stream = BytesIO(wire.framed(b"one") + wire.framed(b"") + wire.framed(b"cut off")[:-1])
    assert [wire.read(stream) for _ in range(4)] == [b"one", b"", None, None]


@pytest.mark.parametrize("value", [10**400, "\ud83d", [None, True, 0.5, {"a": ["b"]}]])
def test_values_come_out_as_they_went_in(value: Any) -> None:
    assert wire.loads(wire.dumps(value)) == value


def test_other_types_become_plain_ones() -> None:
    sent = wire.loads(wire.dumps(OrderedDict(role=Role.USER, at=(1, object()))))
    assert sent == {"role": "user", "at": [1, "<object>"]}
    assert {type(sent), type(sent["role"])} == {dict, str}


def test_too_deep_a_value_is_a_recursion_error() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(RecursionError):
        wire.dumps(value)
