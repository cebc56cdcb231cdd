"""MTPLX's tool contract: signatures and the example."""

from datetime import datetime
from typing import Any

import pytest
from tplaudit.probes.policies.servers.mtplx_contract import tool_contract

NOW = datetime(2026, 11, 29)


def contract(*schemas: Any) -> str:
    tools = [
        {"type": "function", "function": {"name": f"f{number}", "parameters": schema}}
        for number, schema in enumerate(schemas)
    ]
    return tool_contract(tools, NOW)


@pytest.mark.parametrize(
    ("schema", "signature", "example"),
    [
        (None, "f0()", ""),
        ({"type": "object", "properties": {}}, "f0()", ""),
        ({"properties": {"a": {"type": "integer"}}}, "f0(a?:integer)", "<parameter=a>\n0\n</parameter>\n"),
        (
            {"properties": {"a": {"type": ["null", "boolean"]}, "b": {}}, "required": ["b"]},
            "f0(b:any, a?:boolean)",
            "<parameter=b>\nARGUMENT_VALUE\n</parameter>\n",
        ),
        (
            {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "array"}]}}},
            "f0(a?:string|any[])",
            "<parameter=a>\nARGUMENT_VALUE\n</parameter>\n",
        ),
        (
            {"properties": {"a": {"type": "array", "items": {"type": "object", "properties": {"k": {}}}}}},
            "f0(a?:object[])",
            '<parameter=a>\n[{"k": "ARGUMENT_VALUE"}]\n</parameter>\n',
        ),
    ],
)
def test_signature_and_example(schema: Any, signature: str, example: str) -> None:
    text = contract(schema)
    assert f"Declared tools and schemas: {signature}. Call only" in text
    assert f"for example: <tool_call>\n<function=f0>\n{example}</function>\n</tool_call>. Do not" in text


def test_names_alone_where_signatures_are_too_long() -> None:
    schema = {"properties": {"long" * 40: {"type": "string"}}}
    text = contract(*[schema] * 8)
    assert text.count("?:string") == 6
    assert "; f6; f7. Call only" in text
