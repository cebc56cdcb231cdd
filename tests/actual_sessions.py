"""Sessions whose requests carry what a server said: the counts of a replay, changed where a test says so."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from tplaudit import fixtures
from tplaudit.probes.conversation import ActualReuse, Message, Request, Transcript
from tplaudit.probes.models.model import ReplayModel, load_model
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.replay.actual.server_log import ServerLog
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.replay.replay_report import PolicyReport

Said = Callable[[int, ActualReuse], ActualReuse | None]


def model(template: str = "in-place") -> ReplayModel:
    """Return a bundled template, with one token per character."""
    return load_model(str(fixtures.template(template)), tokenizer="characters")


def ferry(turns: int = 5, *, edited: int = 0) -> list[Request]:
    """Return requests of two conversations in turn, with replies; both begin alike.

    Args:
        turns: how many of each.
        edited: in which turn the client has changed the first question of the first one; 0 for none.
    """
    system = {"role": "system", "content": "You answer questions about a small ferry. " * 4}
    requests: list[Request] = []
    histories = [[system, {"role": "user", "content": f"Line {name}: {'when? ' * 30}"}] for name in "AB"]
    for turn in range(1, turns + 1):
        for history in histories:
            if turn == edited and history is histories[0]:
                history[1] = {"role": "user", "content": "Line C, please: " + "when? " * 30}
            reply = {"role": "assistant", "content": f"Turn {turn}: at nine, as the board says. " * 2}
            messages = tuple(Message(each, at) for at, each in enumerate(history))
            requests.append(Request(messages, reply=reply, answered=True))
            history += [reply, {"role": "user", "content": f"And in turn {turn}? " * 3}]
            if turn == 3:
                history.append({"role": "system", "content": "Mind the tide."})
                history.append({"role": "user", "content": "Do so."})
    return requests


def transcript(requests: list[Request]) -> Transcript:
    """Return requests as a transcript."""
    return Transcript("test", "openai-chat", lambda: iter(requests))


def replayed(
    requests: list[Request], policy: str, log: ServerLog | None = None, **more: object
) -> PolicyReport:
    """Replay requests under one policy, without causes."""
    run = Replay(
        transcript(requests),
        model(),
        [parse_policy(policy)],
        causes=False,
        log=log,
        **more,  # type: ignore[arg-type]
    )
    for _ in run.turns():
        pass
    return run.report().policies[0]


def answered(
    requests: list[Request], policy: str, said: Said = lambda turn, actual: actual, **more: object
) -> list[Request]:
    """Return requests with what a policy counts as the numbers of the server."""
    turns = replayed(requests, policy, **more).turns
    found = []
    for request, turn in zip(requests, turns, strict=True):
        actual = None
        if turn.reused is not None:
            actual = said(turn.turn, ActualReuse(turn.reused, turn.prompt_tokens, "usage"))
        found.append(request.replace(actual=actual))
    return found


def less(turns: set[int], by: int) -> Said:
    """Return what lowers the server's number in some turns, to 0 at least."""

    def said(turn: int, actual: ActualReuse) -> ActualReuse:
        return dataclasses.replace(actual, reused=max(0, actual.reused - by)) if turn in turns else actual

    return said


def batched_log(report: PolicyReport, path: Path) -> Path:
    """Write the log of a batched engine that reused what a report counts, with other lines in between."""
    lines = ["INFO:     Started server process [1]"]
    for turn in report.turns:
        lines.append(
            f"INFO:engine.scheduler:[schedule] request=r{turn.turn} uid={turn.turn} "
            f"prompt_tokens={turn.prompt_tokens} tokens_to_prefill={turn.reprefill}, {turn.reused} cached (x)"
        )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
