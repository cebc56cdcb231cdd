"""The run of a replay: in this process or in several, with progress on stderr."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from .formats.durations import duration
from .output import progress, say

if TYPE_CHECKING:
    from ..probes.caches.stored_reply import Store
    from ..probes.conversation import Transcript
    from ..probes.cost.prefill_timer import PrefillTimer
    from ..probes.engine.mlx_engine import MLXEngine
    from ..probes.models.model import ReplayModel
    from ..probes.policies.base import Policy
    from ..probes.replay.actual.server_log import ServerLog
    from ..probes.replay.jobs import ReplaySettings
    from ..probes.replay.plan import PrefillPlan
    from ..probes.replay.replay import Replay
    from ..probes.replay.replay_report import Ranking, ReplayReport, TurnReport

#: From this many tokens on, the user learns beforehand what is going to be prefilled.
LARGE = 200_000


def in_processes(
    settings: ReplaySettings, names: Sequence[str], jobs: int, loaded: ReplayModel
) -> tuple[ReplayReport, int]:
    """Replay the policies in several processes; return the report and the exit code so far."""
    from ..probes.replay.jobs import replay_in_processes

    try:
        with progress("replaying …"):
            report = replay_in_processes(settings, loaded, names, jobs)
    except KeyboardInterrupt:
        say("tplaudit: interrupted; several processes report at the end only")
        raise
    return report, 0 if report.complete else 2


def load_engine(model: ReplayModel, kv_bits: int | None, kv_group_size: int) -> MLXEngine:
    """Load the model that is run."""
    from ..probes.engine.mlx_engine import load_engine as load

    with _interrupted_early():
        return load(model, kv_bits=kv_bits, kv_group_size=kv_group_size)


def in_this_process(
    settings: ReplaySettings,
    loaded: ReplayModel,
    policies: Sequence[Policy],
    engine: MLXEngine | None,
    verify: bool,
    max_minutes: float | None,
    transcript: Transcript,
    log: ServerLog | None,
) -> tuple[ReplayReport, int]:
    """Replay all policies side by side; return the report and the exit code so far."""
    from ..probes.replay.remedies import with_tried_remedies
    from ..probes.replay.replay import Replay

    new_replay = partial(
        Replay,
        transcript,
        loaded,
        policies,
        block_size=settings.block_size,
        capacity_bytes=settings.capacity_bytes,
        store=settings.store,
        log=log,
    )
    prefill_timer = _prefill_timer(settings, engine, max_minutes)
    plan = None
    if engine:
        plan = _counted(new_replay(layout=engine.layout, causes=False, compare=False), policies)
        if loaded.is_large or max_minutes is not None or sum(plan.tokens.values()) >= LARGE:
            say(f"note: {_announced(plan, prefill_timer)}")
    replay = new_replay(engine=engine, prefilling=prefill_timer, verify=verify, causes=settings.causes)
    report, code = _finished(replay, plan)
    return with_tried_remedies(replay, report, settings.try_remedies), code


def ranked_servers(
    settings: ReplaySettings,
    model: ReplayModel,
    transcript: Transcript,
    log: ServerLog | None,
    store: Store | None,
) -> Ranking:
    """Rank all servers by what was actually reused, and say how far that is.

    Args:
        settings: the replay.
        model: template and tokenizer.
        transcript: the session.
        log: the server's log.
        store: what is stored after a turn, where a person says so; None to try both.

    Raises:
        UsageError: nothing says what was reused.
    """
    from ..probes.replay.actual.ranking import RankedSession, check_actual, ranked, read_session

    kept = model.state_size
    session = RankedSession(
        read_session(transcript), model, kept.kind, kept.sizes, settings.capacity_bytes, log
    )
    check_actual(session)
    with _interrupted_early(), progress("comparing servers …") as status:
        return ranked(
            session,
            store=store,
            block_size=settings.block_size,
            progress=lambda count, turn, turns: status.update(
                f"comparing {count} servers and options: turn {turn} of {turns}"
            ),
        )


def _prefill_timer(
    settings: ReplaySettings, engine: MLXEngine | None, max_minutes: float | None
) -> PrefillTimer:
    from ..probes.cost.prefill_timer import PrefillTimer

    return PrefillTimer(
        engine,
        rate=settings.prefill_rate,
        calibration=settings.calibration,
        model=settings.identity,
        max_seconds=None if max_minutes is None else 60 * max_minutes,
    )


def _finished(replay: Replay, plan: PrefillPlan | None) -> tuple[ReplayReport, int]:
    """Run a replay to its end, to the transcript's first fault, or to Ctrl-C."""
    from ..probes.errors import InputError

    failure: str | None = None
    code = 0
    try:
        _run(replay, plan)
    except InputError as error:
        failure, code = str(error), 2
    except KeyboardInterrupt:
        failure, code = f"interrupted {_how_far(replay, plan)}", 130
    return replay.report(complete=failure is None, error=failure), code


@contextmanager
def _interrupted_early() -> Iterator[None]:
    """Say on Ctrl-C that there is nothing to show."""
    try:
        yield
    except KeyboardInterrupt:
        say("tplaudit: interrupted before the first turn")
        raise


def _counted(replay: Replay, policies: Sequence[Policy]) -> PrefillPlan:
    """Count what is going to be prefilled, up to the transcript's end or its first fault."""
    from ..probes.errors import InputError
    from ..probes.replay.plan import PrefillPlan

    turns: list[tuple[TurnReport, ...]] = []
    with _interrupted_early(), progress("counting …"), suppress(InputError):
        turns.extend(replay.turns())
    return PrefillPlan.of([policy.name for policy in policies], turns)


def _announced(plan: PrefillPlan, prefill_timer: PrefillTimer) -> str:
    """Say what is going to be prefilled, and how long it takes where that is known."""
    tokens = ", ".join(f"{count:,} tokens under {policy}" for policy, count in plan.tokens.items())
    said = f"{len(plan.turns)} turns are going to prefill {tokens} (counted)"
    cost = prefill_timer.cost
    return f"{said}, in about {duration(plan.seconds(cost))} (predicted from a calibration)" if cost else said


def _run(replay: Replay, plan: PrefillPlan | None) -> None:
    started = time.monotonic()
    with progress("replaying …") as status:
        for number, turns in enumerate(replay.turns(), 1):
            tokens = max((turn.prompt_tokens or 0 for turn in turns), default=0)
            of = f" of {len(plan.turns)}" if plan else ""
            spent = time.monotonic() - started
            left = _left(replay, plan, number, spent)
            status.update(f"turn {number}{of}: {tokens:,} tokens, {duration(spent)}{left}")


def _left(replay: Replay, plan: PrefillPlan | None, number: int, spent: float) -> str:
    """Estimate the remaining time from what the turns so far took, weighted by what each one computes."""
    cost = replay.prefilling.cost
    if plan is None or cost is None or replay.prefilling.stopped:
        return ""
    done, rest = plan.seconds(cost, last=number), plan.seconds(cost, first=number + 1)
    return f", about {duration(spent * rest / done)} left" if done else ""


def _how_far(replay: Replay, plan: PrefillPlan | None) -> str:
    done = replay.finished
    if plan is None:
        return f"after turn {done}, with the rest not run"
    return f"after turn {done} of {len(plan.turns)}, with {len(plan.turns) - done} not run"
