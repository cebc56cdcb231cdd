"""mlx-vlm: three versions of its messages route, and the others."""

import json
from typing import Any

import pytest
from chat_messages import CALL, A, S, U, data, part, prepared, vectors_of
from tplaudit.probes.conversation import TOP_LEVEL


@pytest.mark.parametrize("route", ["none", "messages"])
@pytest.mark.parametrize("vector", vectors_of("mlx-vlm/"), ids=lambda each: each["id"])
def test_vector(vector: dict[str, Any], route: str) -> None:
    assert data(prepared(f"mlx-vlm:route={route}", vector["messages"])) == vector["expected"]


def test_mv4_between_users() -> None:
    messages = [U("u1"), S("n"), U("u2")]
    for route in ("none", "messages"):
        assert data(prepared(f"mlx-vlm:route={route}", messages)) == messages


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("", [S("a\nb"), U("u"), S("n"), A("x")]),
        (",version=before-2052", [S("a\nb\nn"), U("u"), A("x")]),
        (",version=0.7.10", [S("a\nb"), U("u"), U("n"), A("x")]),
    ],
)
def test_versions_of_the_messages_route(version: str, expected: list[dict[str, Any]]) -> None:
    messages = [S("a"), S([part(" b"), part("")]), U("u"), S("n"), A("x")]
    after = prepared(f"mlx-vlm:route=messages{version}", messages)
    assert data(after) == expected
    assert after.request.messages[0].origins[:2] == (0, 1)


def test_a_later_system_turn_is_told_apart() -> None:
    messages = [U("u"), S("n")]
    for version, kind in (("before-2052", "hoisted"), ("0.7.10", "noted")):
        after = prepared(f"mlx-vlm:route=none,version={version}", messages)
        assert [(action.kind, action.messages) for action in after.actions] == [(kind, (1,))]


def test_chat_completions_passes_on_and_since_0_7_10_hoists() -> None:
    messages = [S("a"), U([part("u")]), {"role": "developer", "content": [part("n"), part("m ")]}]
    assert data(prepared("mlx-vlm", messages)) == messages
    after = prepared("mlx-vlm:version=0.7.10", messages)
    assert data(after) == [S("a\n\nn m"), U([part("u")])]
    assert after.request.messages[0].origins == (0, 2)


@pytest.mark.parametrize("version", ["before-2052", "0.7.10"])
def test_responses_hoists_in_every_version(version: str) -> None:
    items = [
        {"type": "message", "role": "user", "content": "u"},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "d"}]},
    ]
    after = prepared(f"mlx-vlm:version={version}", items, dialect="openai-responses", system="I")
    assert data(after) == [S("I\n\nd"), U("u")]
    assert after.request.messages[0].origins == (TOP_LEVEL, 1)


def test_an_anthropic_request_is_trimmed_and_keeps_the_billing_header() -> None:
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [part(" r"), part("")]}
    messages = [
        U([result, part(" go "), part("")]),
        A([part("x "), {"type": "tool_use", "id": "c1", "name": "f", "input": {}}]),
        S([part("n")]),
    ]
    header = "x-anthropic-billing-header: v1"
    after = prepared("mlx-vlm", messages, dialect="anthropic-messages", system=[part(header), part("You ")])
    assert data(after) == [
        S(f"{header}\nYou"),
        U("go"),
        {"role": "tool", "tool_call_id": "c1", "content": "r"},
        A("x", tool_calls=[CALL]),
        S("n"),
    ]
    picture = {"type": "image", "source": {"type": "url", "url": "x"}}
    (turn,) = data(prepared("mlx-vlm", [U([part(" a"), picture])], dialect="anthropic-messages"))
    assert part(" a") in turn["content"]


def test_kwargs_and_arguments_and_tools() -> None:
    call = {**CALL, "function": {"name": "f", "arguments": "oops"}}
    tool = {"type": "function", "function": {"parameters": {"b": [1], "a": {}}, "name": "f"}}
    after = prepared("mlx-vlm:version=0.7.10", [A("", tool_calls=[call])], tools=(tool,))
    assert after.request.messages[0].data["tool_calls"] == [CALL]
    assert json.dumps(after.request.tools[0]) == (  # type: ignore[index]
        '{"function": {"name": "f", "parameters": {"a": {}, "b": [1]}}, "type": "function"}'
    )
    assert after.request.kwargs == {"enable_thinking": False}
    asked = prepared("mlx-vlm", [U("u")], fields={"thinking": {"type": "enabled"}})
    assert asked.request.kwargs == {"enable_thinking": True}
    assert not prepared("mlx-vlm", [A("a")], partial=True).request.partial
