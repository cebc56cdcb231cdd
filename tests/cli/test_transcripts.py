"""`tplaudit transcripts` as a person runs it."""

import json
from pathlib import Path

from tests.recordings import SESSIONS, unpack


def test_the_conversations_of_a_recording(tplaudit, tmp_path: Path) -> None:
    done = tplaudit("transcripts", str(unpack("claude-code-compact", tmp_path)))
    assert done.returncode == 0
    assert "52 requests, 4 conversations" in done.stdout
    assert "Anthropic Messages; agent: Claude Code." in done.stdout
    for name in ("main", "sub-agent of 1", "compaction of 1", "sub-agent of 3"):
        assert name in done.stdout
    assert "changed what it had sent before in turn 38." in done.stdout
    assert "The tool list changed in turn 16." in done.stdout


def test_json(tplaudit) -> None:
    document = json.loads(tplaudit("transcripts", str(SESSIONS / "title_request.jsonl"), "--json").stdout)
    assert document["schema"] == "tplaudit.transcripts/1"
    assert [each["name"] for each in document["conversations"]] == ["main", "title"]
    assert [turn["predecessor"] for turn in document["turns"]] == [None, None, 1]


def test_what_cannot_be_read(tplaudit, tmp_path: Path) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "a"}]}\n{"messages": 1}\n')
    done = tplaudit("transcripts", str(path))
    assert done.returncode == 2
    assert "1 request, 1 conversation" in done.stdout
    assert ":2" in done.stderr


def test_replay_shows_one_conversation(tplaudit) -> None:
    session = str(SESSIONS / "title_request.jsonl")
    options = ["-p", "as-is", "--engine", "tokens"]
    every = tplaudit("replay", session, *options)
    assert "conversation 2, title" in every.stdout and "policy as-is, conversations" in every.stdout
    one = tplaudit("replay", session, *options, "--conversation", "2")
    assert "conversation 2, title" in one.stdout
    assert "conversation 1" not in one.stdout
    none = tplaudit("replay", session, *options, "--conversation", "3")
    assert none.returncode == 2 and "from 1 to 2" in none.stderr


def test_a_turn_says_what_it_continues(tplaudit) -> None:
    done = tplaudit(
        "replay", str(SESSIONS / "title_request.jsonl"), "-p", "as-is", "--engine", "tokens", "--explain", "3"
    )
    assert "to conversation 1, main (a guess): appended to turn 1" in done.stdout
