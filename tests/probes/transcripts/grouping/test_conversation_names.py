from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tplaudit.probes.conversation import Message, Request
from tplaudit.probes.transcripts.grouping.conversations import (
    Conversations,
)
from tplaudit.probes.transcripts.reader import open_transcript

from tests.recordings import SESSIONS, unpack


def _request(messages: list[dict[str, Any]], **more: Any) -> Request:
    return Request(tuple(Message(message, at) for at, message in enumerate(messages)), **more)


def _result(text: str, id_: str = "c1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": text}


def test_names_of_a_recording_with_a_compaction(tmp_path: Path) -> None:
    conversations = Conversations()
    for turn, request in enumerate(open_transcript(unpack("claude-code-compact", tmp_path)), 1):
        conversations.add(turn, request)
    names = [(each.name, each.guessed) for each in conversations.names()]
    assert names == [
        ("main", False),
        ("sub-agent of 1", False),
        ("compaction of 1", False),
        ("sub-agent of 3", False),
    ]


def test_a_title_is_named() -> None:
    conversations = Conversations()
    for turn, request in enumerate(open_transcript(SESSIONS / "title_request.jsonl"), 1):
        conversations.add(turn, request)
    assert [(each.name, each.guessed) for each in conversations.names()] == [("main", True), ("title", False)]


def test_a_sub_agent_of_a_sub_agent_is_named_after_who_called_it() -> None:
    def agent(task: str, *more: dict[str, Any]) -> Request:
        return _request([{"role": "system", "content": "Do it."}, {"role": "user", "content": task}, *more])

    def delegated(task: str) -> dict[str, Any]:
        function = {"name": "agent", "arguments": json.dumps({"prompt": task})}
        return {"role": "assistant", "content": "", "tool_calls": [{"id": "x", "function": function}]}

    conversations = Conversations()
    requests = [
        agent("Mend the parser."),
        agent("Look for the tests."),
        agent("Count the tests."),
        agent("Look for the tests.", delegated("Count the tests."), _result("4")),
        agent("Mend the parser.", delegated("Look for the tests."), _result("There are four.")),
    ]
    for turn, request in enumerate(requests, 1):
        conversations.add(turn, request)
    assert [each.name for each in conversations.names()] == ["main", "sub-agent of 1", "sub-agent of 2"]
