"""Several processes report what one process reports."""

from __future__ import annotations

from tplaudit.fixtures import transcript
from tplaudit.probes.models.model import load_model
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.replay.jobs import ReplaySettings, replay_in_processes
from tplaudit.probes.replay.remedies import with_tried_remedies
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.transcripts.reader import open_transcript


def test_two_processes_report_the_same_as_one() -> None:
    path = str(transcript("chat"))
    names = ["as-is", "omlx", "note"]
    run = Replay(open_transcript(path), load_model(None), [parse_policy(name) for name in names])
    for _ in run.turns():
        pass
    one = with_tried_remedies(run, run.report(), None)
    assert replay_in_processes(ReplaySettings(path), load_model(None), names, 2) == one
