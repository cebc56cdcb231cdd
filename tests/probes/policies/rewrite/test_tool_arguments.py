"""Arguments of tool calls, as text and as dicts."""

from typing import Any

import pytest
from tplaudit.probes.conversation import Message
from tplaudit.probes.policies.rewrite.tool_arguments import parse_arguments


def call(arguments: Any) -> dict[str, Any]:
    return {"id": "c", "function": {"name": "f", "arguments": arguments}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('{"x": [1, null]}', {"x": [1, None]}),
        ("", {}),
        (" \n", {}),
        ("{", "{"),
        ("[1]", "[1]"),
        ("7", "7"),
        ("[" * 100_000, "[" * 100_000),
        ({"x": 1}, {"x": 1}),
        (None, None),
    ],
    ids=["object", "empty", "blank", "broken", "array", "number", "too deep", "dict", "null"],
)
def test_arguments(given: Any, expected: Any) -> None:
    message = Message({"role": "assistant", "tool_calls": [call(given)]}, 3)
    after = parse_arguments((message,))
    assert after.messages[0].data["tool_calls"] == [call(expected)]
    changed = given != expected
    assert [action.messages for action in after.actions] == ([(3,)] if changed else [])
    assert (after.messages[0] is message) != changed


@pytest.mark.parametrize(
    "calls", [None, "x", [], [None], ["x"], [{}], [{"function": None}], [{"function": {}}]]
)
def test_odd_calls_stay(calls: Any) -> None:
    message = Message({"role": "assistant", "tool_calls": calls}, 0)
    assert parse_arguments((message,)).messages == (message,)
