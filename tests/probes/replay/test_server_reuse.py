"""What running servers reused of small sessions."""

from __future__ import annotations

from pathlib import Path

import pytest
from tplaudit.probes.conversation import Message, Request, Transcript
from tplaudit.probes.models.model import load_model
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.replay.replay_report import PolicyReport
from tplaudit.probes.transcripts.reader import open_transcript

ROOT = Path(__file__).parents[3]
SESSIONS = ROOT / "tests" / "data" / "sessions"
IN_PLACE = str(ROOT / "fixtures" / "templates" / "in-place.jinja")


def replayed(transcript: Transcript, policy: str, model: str) -> PolicyReport:
    run = Replay(transcript, load_model(model), [parse_policy(policy)], causes=False)
    for _ in run.turns():
        pass
    return run.report().policies[0]


@pytest.mark.parametrize(
    ("file", "policy", "model", "reused"),
    [
        # llama.cpp b11434, four slots by default: what is shared is less than a tenth of the prompt.
        ("slots", "llama-cpp", IN_PLACE, [0, 0, 0]),
        # mlx-lm 0.32.2: a developer message is no system segment.
        ("developer", "mlx-lm", "bundled:hybrid", [0, 0, 0]),
    ],
)
def test_what_a_running_server_reused(file: str, policy: str, model: str, reused: list[int]) -> None:
    run = replayed(open_transcript(str(SESSIONS / f"{file}.jsonl")), policy, model)
    assert [turn.reused for turn in run.turns] == reused


def test_one_slot_gives_back_the_little_that_is_shared() -> None:
    run = replayed(open_transcript(str(SESSIONS / "slots.jsonl")), "llama-cpp:slots=1", IN_PLACE)
    assert all(turn.reused for turn in run.turns[1:])
    assert run.totals.avoidable == 0


def _session(*systems: str) -> Transcript:
    """Return a session of two requests; later system texts stand where the second one has its question."""
    first = [{"role": "system", "content": "Be a careful programmer."}, {"role": "user", "content": "Hello?"}]
    later = [*first, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Look."}]
    notes = [{"role": "system", "content": text} for text in systems]
    requests = [
        Request(tuple(Message(each, at) for at, each in enumerate(messages)))
        for messages in (first, [*later, *notes])
    ]
    return Transcript("test", "openai-chat", lambda: iter(requests))


def test_the_simple_engine_of_vllm_mlx_reuses_nothing_behind_a_later_system_message() -> None:
    policy = "vllm-mlx:engine=simple,route=chat"
    first, second = replayed(_session(), policy, IN_PLACE).turns
    assert first.reused == 0 < second.reused < first.prompt_tokens
    assert second.avoidable == 0
    run = replayed(_session("Plan mode is on."), policy, IN_PLACE)
    assert run.turns[1].reused == 0
    # What the system message would have given is what it costs; the rest is never given back.
    assert run.turns[1].avoidable == second.reused
    batched = replayed(_session("Plan mode is on."), "vllm-mlx:engine=batched,route=chat", IN_PLACE)
    assert batched.turns[1].avoidable == 0
