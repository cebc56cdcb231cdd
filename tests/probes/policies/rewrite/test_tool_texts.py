"""Tool calls and results as text."""

from tplaudit.probes.policies.rewrite.tool_texts import call_line, call_lines, result_prefix


def test_call_lines() -> None:
    assert call_line("f", "{}") == "[Calling tool: f({})]"
    calls = [
        {"function": {"name": "f", "arguments": '{"a": 1}'}},
        {"function": {"name": "g", "arguments": {"a": None}}},
        {"function": {}},
        {},
        "no call",
    ]
    assert call_lines(calls) == [
        '[Calling tool: f({"a": 1})]',
        '[Calling tool: g({"a": null})]',
        "[Calling tool: unknown({})]",
        "[Calling tool: unknown({})]",
    ]


def test_result_prefix() -> None:
    assert result_prefix("c1") == "[Tool Result (c1)]: "
    assert result_prefix("c1", "Error") == "[Tool Error (c1)]: "
