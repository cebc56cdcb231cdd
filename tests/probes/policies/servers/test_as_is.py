from typing import Any

from chat_messages import actions
from tplaudit.probes.policies.registry import Action

CALL = {"tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": {}}}]}

AFTER_TOOL = (("S", "s"), ("U", "u"), ("A", "", CALL), ("T", "r"), ("S", "n"))


def test_as_is_keeps_every_run(fake_template: Any) -> None:
    assert actions("as-is", fake_template(), *AFTER_TOOL) == (
        Action("kept", (0,), "passed on as it is"),
        Action("kept", (4,), "passed on as it is"),
    )
