"""The recordings of tests/data, unpacked where a test needs a file."""

import json
import lzma
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tplaudit import fixtures
from tplaudit.probes.models.model import load_model
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.replay.replay_report import ReplayReport
from tplaudit.probes.transcripts.reader import open_transcript

DATA = Path(__file__).parent / "data" / "recordings"
SESSIONS = Path(__file__).parent / "data" / "sessions"
NAMES = sorted(path.name.partition(".")[0] for path in DATA.glob("*.jsonl.xz"))


def unpack(name: str, folder: Path, *, first: int | None = None, turns: Sequence[int] | None = None) -> Path:
    """Write a recording to a folder.

    Args:
        name: the recording.
        folder: where to.
        first: how many of its requests; None for all.
        turns: which of them, counted from 1; None for all.
    """
    lines = lzma.decompress((DATA / f"{name}.jsonl.xz").read_bytes()).splitlines(keepends=True)
    chosen = lines[:first] if turns is None else [lines[turn - 1] for turn in turns]
    path = folder / f"{name}.jsonl"
    path.write_bytes(b"".join(chosen))
    return path


def answers(name: str) -> list[dict[str, Any]]:
    """Return what each request of a recording continues."""
    found: list[dict[str, Any]] = json.loads((DATA / "conversations.json").read_text("utf-8"))[name]
    return found


def sequences() -> list[dict[str, Any]]:
    """Return the short sequences with their right answers."""
    found: list[dict[str, Any]] = json.loads((SESSIONS / "sequences.json").read_text("utf-8"))
    return found


def replayed(
    path: Path, template: str, policies: Sequence[str], store: str = "prompt", **options: Any
) -> ReplayReport:
    """Replay a transcript to its end with a bundled template, and return the report."""
    run = Replay(
        open_transcript(path),
        load_model(str(fixtures.template(template))),
        [parse_policy(policy) for policy in policies],
        store=store,  # type: ignore[arg-type]
        **options,
    )
    for _ in run.turns():
        pass
    return run.report()
