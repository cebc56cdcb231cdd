from __future__ import annotations

from pathlib import Path

import pytest
from tplaudit.probes.conversation import Message, Request
from tplaudit.probes.transcripts.grouping.agents import Agent, agent_of
from tplaudit.probes.transcripts.reader import open_transcript

from tests.recordings import unpack


@pytest.mark.parametrize(
    ("recording", "agent"),
    [
        ("claude-code-compact", Agent("Claude Code")),
        ("codex-exec", Agent("Codex", True)),
        ("qwen-code", Agent("Qwen Code", True)),
        ("pi", Agent("pi", True)),
        ("mini-swe-agent", Agent("mini-swe-agent", True)),
    ],
)
def test_recordings(recording: str, agent: Agent, tmp_path: Path) -> None:
    first = next(iter(open_transcript(unpack(recording, tmp_path, first=1))))
    assert agent_of(first) == agent


def test_nothing_tells() -> None:
    assert agent_of(Request((Message({"role": "user", "content": "I like Claude Code."}, 0),))) is None
