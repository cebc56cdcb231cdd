"""What two requests both hold is held once."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tplaudit.probes.transcripts.reader import open_transcript

Write = Callable[..., Path]

USER = {"role": "user", "content": "Which checks fail?"}

ANSWER = {"role": "assistant", "content": "Two.", "reasoning_content": "style, types"}
TOOL = {"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}


def test_messages_and_tools_are_shared_where_their_text_is_the_same(write: Write) -> None:
    reordered = {"content": "Which checks fail?", "role": "user"}
    number: dict[str, Any] = {**USER, "weight": 1}
    requests = list(
        open_transcript(
            write(
                {"messages": [USER, number], "tools": [TOOL]},
                {"messages": [USER, number, ANSWER], "tools": [TOOL]},
                {
                    "messages": [reordered, {**number, "weight": 1.0}, ANSWER],
                    "tools": [{**TOOL, "type": "f"}],
                },
                {"messages": [USER, {**number, "weight": True}, ANSWER]},
            )
        )
    )
    first, second, third, fourth = (request.messages for request in requests)
    assert second[0] is first[0]
    assert second[1] is first[1]
    assert third[0] is not second[0]
    assert list(third[0].data) == ["content", "role"]
    assert third[1] is not second[1]
    assert json.dumps(third[1].data["weight"]) == "1.0"
    assert third[2] is second[2]
    assert list(fourth[0].data) == ["role", "content"]
    assert fourth[1].data["weight"] is True
    assert requests[1].tools is requests[0].tools
    assert requests[2].tools == ({**TOOL, "type": "f"},)
    assert requests[3].tools is None


def test_memory_follows_the_conversation_not_the_file(write: Write) -> None:
    messages = [{"role": "user", "content": f"{index} " + "x" * 3_000} for index in range(60)]
    path = write(*({"messages": messages[: end + 1]} for end in range(60)))
    tracemalloc.start()
    requests = list(open_transcript(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(requests) == 60
    assert path.stat().st_size > 5_000_000
    assert peak < 1_500_000
