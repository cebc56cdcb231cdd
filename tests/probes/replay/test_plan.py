from __future__ import annotations

from itertools import islice

import pytest
from tplaudit.fixtures import template, transcript
from tplaudit.probes.conversation import Transcript
from tplaudit.probes.cost.cost_model import CostModel
from tplaudit.probes.engine.mlx_engine import load_engine
from tplaudit.probes.models.model import load_model
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.replay.plan import PrefillPlan
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.transcripts.reader import open_transcript

TURNS = 7


@pytest.fixture(scope="module")
def engine():
    return load_engine(load_model(None))


def replayed(prefilling, engine=None, policies=("omlx", "note"), **options):
    session = open_transcript(transcript("claude-code"))
    run = Replay(
        Transcript("session", session.dialect, lambda: islice(session, TURNS)),
        load_model(None, template=str(template("strict"))),
        [parse_policy(name) for name in policies],
        block_size=16,
        engine=engine,
        prefilling=prefilling,
        causes=False,
        **options,
    )
    turns = list(run.turns())
    return run.report(), turns


def test_the_plan_is_what_the_engine_then_runs(engine):
    _, counted = replayed(None, layout=engine.layout)
    plan = PrefillPlan.of(["omlx", "note"], counted)
    report, _ = replayed(None, engine)
    assert plan.tokens == {policy.policy: policy.totals.reprefill for policy in report.policies}
    rate = CostModel.at_rate(1)
    assert plan.seconds(rate) == sum(plan.tokens.values())
    assert plan.seconds(rate, last=3) + plan.seconds(rate, first=4) == plan.seconds(rate)
    assert plan.seconds(rate, first=8) == 0


def test_turns_that_raise_are_no_work():
    _, counted = replayed(None, policies=("as-is", "omlx"))
    plan = PrefillPlan.of(["as-is", "omlx"], counted)
    raised = [turn[0].error is not None for turn in counted]
    assert any(raised)
    assert [turn[0] is None for turn in plan.turns] == raised
