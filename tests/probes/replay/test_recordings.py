"""Recordings of real agents run to their end, whatever the policy, the store and the template."""

from __future__ import annotations

from pathlib import Path

import pytest
from tplaudit.probes.policies.registry import POLICIES
from tplaudit.probes.replay.replay_report import ReplayReport

from tests.recordings import NAMES, answers, replayed, unpack

TEMPLATES = ("strict", "in-place", "moving", "dropping")
BLAMES_THE_CLIENT = {"client-rewrites-history", "tools-come-and-go", "volatile-text"}


def _replayed(name: str, tmp_path: Path, template: str, policies: list[str], store: str) -> ReplayReport:
    return replayed(unpack(name, tmp_path), template, policies, store)


def _check(name: str, report: ReplayReport) -> None:
    wanted = answers(name)
    for policy in report.policies:
        for turn, want in zip(policy.turns, wanted, strict=True):
            assert turn.conversation == want["conversation"]
            if turn.reprefill is None:
                continue
            assert turn.unavoidable is not None and turn.avoidable is not None
            assert turn.unavoidable >= 0 and turn.avoidable >= 0
            assert turn.reprefill == turn.unavoidable + turn.avoidable
            if turn.relation == "begins":
                assert turn.avoidable == 0 and turn.divergence is None
        sums = [each.totals for each in policy.conversations]
        for field in ("prompt_tokens", "reused", "reprefill", "unavoidable", "avoidable", "failed"):
            assert sum(getattr(each, field) for each in sums) == getattr(policy.totals, field)
    touched = {want["turn"] for want in wanted if want.get("changed") or want.get("edited")}
    for finding in report.findings:
        if finding.rule in BLAMES_THE_CLIENT:
            assert set(finding.turns) <= touched, finding


@pytest.mark.parametrize(
    ("name", "template", "policy", "store"),
    [
        ("codex-exec", "strict", "vllm", "prompt"),
        ("codex-exec", "dropping", "llama-cpp", "prompt+output"),
        ("mini-swe-agent", "in-place", "mlx-lm", "prompt+output"),
        ("pi", "moving", "rapid-mlx", "prompt"),
        ("qwen-code", "strict", "omlx", "prompt"),
        ("claude-code-compact", "moving", "vllm-mlx", "prompt"),
    ],
)
def test_a_sample(name: str, template: str, policy: str, store: str, tmp_path: Path) -> None:
    _check(name, _replayed(name, tmp_path, template, [policy], store))


def test_notes_of_sub_agents_change_their_place_in_each_of_them(tmp_path: Path) -> None:
    report = _replayed("claude-code-parallel-subagents", tmp_path, "strict", ["omlx"], "prompt")
    (policy,) = report.policies
    turns = {turn.turn: turn for turn in policy.turns}
    found = {
        turn.conversation
        for turn in turns.values()
        if turn.divergence and any(link.cause == "note-neighbour-flip" for link in turn.divergence.chain)
    }
    assert found == {2, 3, 4, 5, 6, 7}
    _check("claude-code-parallel-subagents", report)


@pytest.mark.slow
@pytest.mark.parametrize("store", ["prompt", "prompt+output"])
@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("name", NAMES)
def test_all(name: str, template: str, store: str, tmp_path: Path) -> None:
    _check(name, _replayed(name, tmp_path, template, list(POLICIES), store))
