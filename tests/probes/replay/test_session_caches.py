"""A session's tokens go through other caches as if the session were replayed with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tplaudit.fixtures import template, transcript
from tplaudit.probes.caches.base import PrefixCache
from tplaudit.probes.caches.registry import make_cache
from tplaudit.probes.conversation import Message, Request, Transcript
from tplaudit.probes.models.model import load_model
from tplaudit.probes.models.sizes import Sizes
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.replay.lone_caches import Step
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.replay.replay_report import TurnReport
from tplaudit.probes.replay.session_caches import SessionCaches, StoredTurn
from tplaudit.probes.replay.totals import totals
from tplaudit.probes.templates.renderer import Renderer
from tplaudit.probes.tokenization.tokens import IncrementalEncoder
from tplaudit.probes.transcripts.grouping.conversations import Continuation
from tplaudit.probes.transcripts.reader import open_transcript

COUNTED = ("turn", "prompt_tokens", "reused", "reprefill", "unavoidable", "avoidable", "losses", "error")


def counts(turns: tuple[TurnReport, ...]) -> list[tuple[Any, ...]]:
    return [tuple(getattr(turn, name) for name in COUNTED) for turn in turns]


def interleaved() -> Transcript:
    """Two conversations that take turns, a request that a strict template refuses, and one that edits."""
    requests = []
    for number in range(8):
        opening = [{"role": "user", "content": f"Task {number % 2}. " + "The ferry leaves at nine. " * 60}]
        for step in range(number // 2):
            text = f"Step {step} of task {number % 2}: " + "the tide is late. " * 40
            opening += [{"role": "assistant", "content": text}, {"role": "user", "content": "Go on."}]
        if number == 4:
            opening.append({"role": "system", "content": "Be brief."})
        if number == 7:
            opening[1] = {"role": "assistant", "content": "[cleared]"}
        requests.append(Request(tuple(Message(each, at) for at, each in enumerate(opening))))
    return Transcript("test", "openai-chat", lambda: iter(requests))


@pytest.mark.parametrize(
    ("model", "policy", "store", "capacity"),
    [
        (None, "omlx", "prompt", None),
        (None, "omlx", "prompt+output", 800_000),
        (None, "llama-cpp", "prompt", 800_000),
        ("bundled:hybrid", "omlx", "prompt+output", 800_000),
    ],
)
@pytest.mark.parametrize("session", ["chat", "interleaved"])
def test_other_caches_give_what_a_replay_with_them_gives(
    model: str | None, policy: str, store: Any, capacity: int | None, session: str, monkeypatch: Any
) -> None:
    requests = interleaved() if session == "interleaved" else open_transcript(transcript("chat"))
    loaded = load_model(model, template=str(template("strict")))
    run = Replay(requests, loaded, [parse_policy(policy)], store=store, capacity_bytes=capacity)
    for _ in run.turns():
        pass
    others: list[dict[str, Any]] = [{}, {"unlimited": True}]
    if policy == "omlx":
        others.append({"block_size": 16})
    expected = []
    for other in others:
        again = run.again(requests, [parse_policy(policy)], **other)
        for _ in again.turns():
            pass
        expected.append(again.report().policies[0])
    assert any(turn.reused for turn in expected[0].turns)
    if session == "interleaved":
        lost = {loss.cause for turn in expected[0].turns for loss in turn.losses}
        assert ("evicted" in lost) == (capacity is not None)
        assert any(turn.error for turn in expected[0].turns) == (policy == "llama-cpp")
    monkeypatch.setattr(Renderer, "do", None)  # nothing is rendered, and nothing encoded
    monkeypatch.setattr(IncrementalEncoder, "encode", None)
    for other, replayed in zip(others, expected, strict=True):
        found = run.with_other_cache(policy, **other)
        assert counts(found) == counts(replayed.turns)
        assert totals(found) == replayed.totals


def test_what_was_evicted_is_told_from_what_a_block_does_not_give() -> None:
    sequences = {1: np.arange(100, dtype=np.int32), 2: np.arange(1000, 1100, dtype=np.int32)}
    sequences[3] = np.concatenate([sequences[1], np.arange(20, dtype=np.int32)])
    room: dict[str, Any] = {"capacity_bytes": 96, "sizes": Sizes(1)}  # for the blocks of one sequence

    def new(*, limited: bool = True) -> PrefixCache:
        return make_cache("paged:16", **room if limited else {})

    caches = SessionCaches(new, sequences.__getitem__)
    found = {}
    for number, ids in sequences.items():
        base = 1 if number == 3 else None
        turn = StoredTurn(
            Step(number, len(ids)),
            Continuation(number, 2 if number == 2 else 1, base, "appended" if base else "begins"),
            base,
            kept=100 if base else 0,
            shared=100 if base else 0,
        )
        found[number] = caches.look_up(turn, ids)
        caches.server.store(ids, match=found[number].match)
        assert caches.price(turn, found[number]).prefilled == found[number].reprefill
        caches.store(turn, ids, ids)
    assert (found[1].reprefill, found[1].unavoidable, found[1].losses) == (100, 100, ())
    assert (found[3].reprefill, found[3].unavoidable) == (120, 24)
    rest, evicted = found[3].losses
    assert (rest.cause, rest.tokens) == ("cache-granularity", 4)
    assert (evicted.cause, evicted.tokens, evicted.turn, evicted.conversation) == ("evicted", 96, 2, 2)
    assert list(caches.conversation(3)) == [1, 3]
