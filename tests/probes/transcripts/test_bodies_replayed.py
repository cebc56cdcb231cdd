"""The bundled Anthropic and Responses requests, replayed: reports name the client's own messages."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from tplaudit import fixtures
from tplaudit.probes.conversation import Message, Request
from tplaudit.probes.models.model import load_model
from tplaudit.probes.policies.registry import names, parse_policy
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.replay.replay_report import PolicyReport
from tplaudit.probes.transcripts.reader import open_transcript

NAMES = ("claude-code-messages", "codex-responses")


#: What servers refuse of these sessions: the first turn that has it, and the answer.
REFUSED = {
    ("claude-code-messages", "sglang"): (1, "thinking needs a reasoning parser (--reasoning-parser)"),
    ("codex-responses", "mtplx"): (2, "Responses API: input[3].type='reasoning' is not supported"),
    ("codex-responses", "llama-cpp"): (2, "item['content'] is not an array"),
    ("codex-responses", "vllm"): (2, "encrypted reasoning is not supported"),
}


@cache
def replayed(name: str, policy: str, reasoning: bool = True) -> PolicyReport:
    """Replay a bundled session, with or without its items of reasoning."""
    model = load_model(None, template=str(fixtures.template("in-place")))
    session = open_transcript(fixtures.transcript(name))
    if not reasoning:
        session = replace(session, open=lambda: map(_without_reasoning, open_transcript(session.source)))
    run = Replay(session, model, [parse_policy(policy)])
    for _ in run.turns():
        pass
    (report,) = run.report().policies
    return report


def _without_reasoning(request: Request) -> Request:
    kept = [message.data for message in request.messages if message.data.get("type") != "reasoning"]
    return request.replace(messages=tuple(Message(data, index) for index, data in enumerate(kept)))


def divergences(name: str, policy: str) -> list[tuple[int | None, str]]:
    """Index and role of the message that each turn parts from the one before at."""
    found = [turn.since_previous for turn in replayed(name, policy).turns]
    messages = [each.message for each in found if each is not None and not each.body_preserved]
    return [(message.index, message.role) for message in messages if message is not None]


@pytest.mark.parametrize("policy", names())
@pytest.mark.parametrize("name", NAMES)
def test_every_turn_is_rendered(name: str, policy: str) -> None:
    turns = replayed(name, policy).turns
    assert len(turns) == 10
    errors = [turn.error for turn in turns]
    if (name, policy) not in REFUSED:
        assert errors == [None] * 10
        return
    first, why = REFUSED[name, policy]
    assert errors[: first - 1] == [None] * (first - 1)
    assert all(error is not None and error.startswith(f"HTTP 400: {why}") for error in errors[first - 1 :])


@pytest.mark.parametrize(
    "policy", ["sglang:reasoning-parser=think", *(policy for name, policy in REFUSED if name == NAMES[1])]
)
def test_what_was_refused_is_rendered_without_its_reason(policy: str) -> None:
    name = NAMES[0] if policy.startswith("sglang") else NAMES[1]
    turns = replayed(name, policy, reasoning=name == NAMES[0]).turns
    assert [turn.error for turn in turns] == [None] * 10


@pytest.mark.parametrize("policy", ["as-is", "mlx-lm", "sglang:reasoning-parser=think"])
def test_a_billing_header_that_stays_is_the_top_level_texts(policy: str) -> None:
    assert divergences("claude-code-messages", policy) == [(None, "system")] * 9


@pytest.mark.parametrize("policy", ["omlx", "vllm"])
def test_a_server_that_leaves_it_out_only_appends(policy: str) -> None:
    assert divergences("claude-code-messages", policy) == []


def test_a_hoisted_reminder_has_its_index_among_the_clients_messages() -> None:
    requests = list(open_transcript(fixtures.transcript("claude-code-messages")))
    found = divergences("claude-code-messages", "rapid-mlx")
    assert len(found) >= 6
    for index, role in found:
        assert index is not None
        assert role == requests[-1].role_of(index) == "system"
        content = requests[-1].messages[index].content
        assert not content.startswith("<total_tokens>"), "the server drops a counter that stands alone"


def test_a_developer_item_has_its_index_in_the_input() -> None:
    (last,) = list(open_transcript(fixtures.transcript("codex-responses")))[-1:]
    assert divergences("codex-responses", "as-is") == []
    assert divergences("codex-responses", "rapid-mlx") == [(28, "developer")]
    assert last.messages[28].data["role"] == "developer"
