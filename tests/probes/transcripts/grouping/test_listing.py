from __future__ import annotations

from pathlib import Path

from tplaudit.probes.transcripts.grouping.listing import SCHEMA, list_conversations
from tplaudit.probes.transcripts.reader import open_transcript

from tests.recordings import unpack


def test_a_recording(tmp_path: Path) -> None:
    found = list_conversations(open_transcript(unpack("claude-code-compact", tmp_path)))
    assert (found.schema, found.format, found.dialect) == (SCHEMA, "requests_jsonl", "anthropic-messages")
    assert found.agent is not None and found.agent.name == "Claude Code"
    assert found.complete and found.requests == len(found.turns) == 52
    assert [(each.requests, each.first_turn, each.last_turn) for each in found.conversations] == [
        (28, 1, 38),
        (10, 8, 29),
        (9, 39, 52),
        (5, 45, 49),
    ]
    main, sub, compaction, _ = found.conversations
    assert main.relations == {"begins": 1, "appended": 26, "edited": 1, "branch": 0}
    assert main.changed == {"tools": 1, "system": 0}
    assert sub.relations["branch"] == 1
    assert "Bash" in main.tools and main.models == ("local-model",)
    assert main.first_sent is not None and main.last_sent is not None
    assert main.first_sent < main.last_sent < (compaction.first_sent or "")


def test_what_was_read_before_a_fault(tmp_path: Path) -> None:
    path = unpack("pi", tmp_path, first=3)
    path.write_bytes(path.read_bytes() + b'{"messages": 1}\n')
    found = list_conversations(open_transcript(path))
    assert not found.complete and found.error is not None and ":4" in found.error
    assert found.requests == 3
