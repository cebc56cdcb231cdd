"""Explanations that fail cost a cause, and no number: every render that one makes is made to fail once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tplaudit.probes.errors import RenderError, RenderLimit
from tplaudit.probes.models.model import load_model
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.replay import replay as replays
from tplaudit.probes.replay.explanations import explanation as explanations
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.replay.replay_report import PolicyReport
from tplaudit.probes.templates.template import ChatTemplate
from tplaudit.probes.transcripts.reader import open_transcript

ROOT = Path(__file__).parents[3]
SESSIONS = ROOT / "tests" / "data" / "sessions"


class Failing:
    """Lets the n-th render within an explanation fail, and counts them."""

    def __init__(self, number: int, error: Exception) -> None:
        self.number, self.error, self.seen, self.inside = number, error, 0, False

    def check(self) -> None:
        if self.inside:
            self.seen += 1
            if self.seen == self.number:
                raise self.error


def watched(monkeypatch: pytest.MonkeyPatch, failing: Failing) -> None:
    for name in ("render_request", "chunk_at"):
        own = getattr(ChatTemplate, name)

        def render(self: Any, *args: Any, own: Any = own, **kwargs: Any) -> Any:
            failing.check()
            return own(self, *args, **kwargs)

        monkeypatch.setattr(ChatTemplate, name, render)
    own_explanation = explanations.explanation

    def explanation(*args: Any) -> Any:
        failing.inside = True
        try:
            return own_explanation(*args)
        finally:
            failing.inside = False

    monkeypatch.setattr(replays, "explanation", explanation)


def replayed(name: str, policy: str, template: str | None, store: Any) -> PolicyReport:
    run = Replay(
        open_transcript(str(SESSIONS / f"{name}.jsonl")),
        load_model(str(ROOT / template) if template else None),
        [parse_policy(policy)],
        store=store,
        block_size=1,
    )
    for _ in run.turns():
        pass
    return run.report().policies[0]


def counted(run: PolicyReport) -> list[tuple[Any, ...]]:
    return [
        (turn.turn, turn.prompt_tokens, turn.reused, turn.reprefill, turn.unavoidable, turn.avoidable)
        for turn in run.turns
    ]


@pytest.mark.parametrize(
    "error",
    [RenderError("TypeError", "no"), RenderLimit("too slow"), IndexError("a fault"), AssertionError()],
    ids=["raises", "limit", "index", "assertion"],
)
@pytest.mark.parametrize(
    ("name", "policy", "template", "store"),
    [
        ("counter", "omlx", "fixtures/templates/strict.jinja", "prompt"),
        ("river", "vllm", "tests/data/templates/chatml_think.jinja", "prompt+output"),
        ("pruned_result", "llama-cpp", None, "prompt"),
        ("window", "as-is", None, "prompt"),
    ],
)
def test_every_render_fails_once(
    name: str, policy: str, template: str | None, store: Any, error: Exception
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        counting = Failing(0, error)
        watched(patch, counting)
        whole = replayed(name, policy, template, store)
    assert counting.seen
    for number in range(1, counting.seen + 1):
        with pytest.MonkeyPatch.context() as patch:
            watched(patch, Failing(number, error))
            run = replayed(name, policy, template, store)
        assert counted(run) == counted(whole)
        for turn, expected in zip(run.turns, whole.turns, strict=True):
            assert (turn.divergence is None) == (expected.divergence is None)
            if turn.divergence is not None:
                assert turn.divergence.cause is not None
                assert turn.divergence.evidence


def test_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*args: Any) -> Any:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(explanations, "chain", failing)
    run = replayed("window", "as-is", None, "prompt")
    parted = run.turns[1].divergence
    assert parted is not None
    assert (parted.cause, parted.confirmed) == ("other", False)
    assert "ZeroDivisionError: a fault of ours" in (parted.evidence or "")
    assert run.turns[1].explained == 0
    assert replace(run.turns[0], explained=None).avoidable == 0
