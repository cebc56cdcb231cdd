from typing import Any

from chat_messages import AFTER_TOOL, actions
from tplaudit.probes.policies.registry import Action


def test_as_is_keeps_every_run(fake_template: Any) -> None:
    assert actions("as-is", fake_template(), *AFTER_TOOL) == (
        Action("kept", (0,), "passed on as it is"),
        Action("kept", (4,), "passed on as it is"),
    )
