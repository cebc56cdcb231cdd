from __future__ import annotations

from typing import Any

import pytest
from tplaudit.probes.causes.changes import flat_text
from tplaudit.probes.causes.reasoning import reasoning_of, without_reasoning
from tplaudit.probes.conversation import Message


@pytest.mark.parametrize(
    "data",
    [
        {"content": "yes", "reasoning_content": "why"},
        {"content": "yes", "reasoning": "why"},
        {"content": "<think>\nwhy\n</think>\n\nyes"},
        {"content": [{"type": "thinking", "thinking": "why"}, {"type": "text", "text": "yes"}]},
    ],
)
def test_reasoning_in_every_form(data: dict[str, Any]) -> None:
    message = Message({"role": "assistant", **data}, 3)
    assert reasoning_of(message) == "why"
    bare = without_reasoning(message)
    assert bare is not None
    assert (reasoning_of(bare), flat_text(bare.data["content"]), bare.index) == ("", "yes", 3)
    assert without_reasoning(bare) is None
