"""llama.cpp's own conversions of requests."""

from typing import Any

import pytest
from chat_messages import A, U, data, part, request_of
from tplaudit.probes.policies.servers.llama_cpp_routes import as_llama_chat, steady_billing_header


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("x-anthropic-billing-header: cch=12345;", "x-anthropic-billing-header: cch=fffff;"),
        ("x-anthropic-billing-header: cch=123456;", "x-anthropic-billing-header: cch=123456;"),
        ("x-anthropic-billing-header: v", "x-anthropic-billing-header: v"),
        ("You. x-anthropic-billing-header: cch=12345;", "You. x-anthropic-billing-header: cch=12345;"),
    ],
)
def test_the_billing_header(given: str, expected: str) -> None:
    assert steady_billing_header(given) == expected


@pytest.mark.parametrize(
    "items",
    [
        [U("u"), {"type": "reasoning", "summary": []}],
        [U("u"), A("a")],
        [U([part("a")])],
    ],
)
def test_responses_items_that_the_server_refuses(items: list[dict[str, Any]]) -> None:
    assert as_llama_chat(request_of(items, dialect="openai-responses")).error is not None


def test_an_anthropic_turn_keeps_its_texts_as_parts_and_has_compact_arguments() -> None:
    use = {"type": "tool_use", "id": "c", "name": "f", "input": {"x": [1, "é"]}}
    turn = A([{"type": "thinking", "thinking": "t"}, part("a"), part("b"), use])
    after = data(as_llama_chat(request_of([U([]), turn], dialect="anthropic-messages")))
    function = {"name": "f", "arguments": '{"x":[1,"é"]}'}
    call = {"type": "function", "function": function, "id": "c"}
    assert after == [A([part("a"), part("b")], reasoning_content="t", tool_calls=[call])]
