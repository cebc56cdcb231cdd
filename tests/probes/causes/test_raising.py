from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tplaudit.probes.models.model import ReplayModel, load_model
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.replay.remedies import with_tried_remedies
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.replay.replay_report import PolicyReport
from tplaudit.probes.transcripts.reader import open_transcript

DATA = Path(__file__).parents[2] / "data"


def model(template: Path | None) -> ReplayModel:
    return load_model(str(template) if template else None)


def replayed(name: str, policy: str, template: Path | None = None, **options: Any) -> PolicyReport:
    run = Replay(
        open_transcript(str(DATA / "sessions" / f"{name}.jsonl")),
        model(template),
        [parse_policy(policy)],
        **options,
    )
    for _ in run.turns():
        pass
    return with_tried_remedies(run, run.report()).policies[0]


def test_a_turn_that_raises_is_explained() -> None:
    run = replayed("list_call", "vllm", DATA / "templates" / "args_concat.jinja")
    turn = run.turns[0]
    assert turn.error is not None
    assert turn.failure is not None and turn.failure.message is not None
    assert (turn.failure.line, turn.failure.message.index) == (3, 1)
    assert turn.failure.message.field == "tool_calls"
    assert "as a JSON text" in turn.failure.evidence
    assert "parsed from JSON" in turn.failure.evidence
    assert "policy as-is" in turn.failure.remedies[0].set
    assert replayed("list_call", "as-is", DATA / "templates" / "args_concat.jinja").turns[0].error is None


def test_no_turn_rendered_is_an_error_of_the_run() -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tplaudit.cli.app", "replay", str(DATA / "sessions" / "list_call.jsonl")),
            *("-p", "vllm", "--template", str(DATA / "templates" / "args_concat.jinja"), "--explain", "1"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    for words in ("template line 3", "message 1 (assistant), tool_calls", "parsed from JSON", "remedy"):
        assert words in done.stdout
