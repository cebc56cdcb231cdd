"""`tplaudit replay`: a transcript, turn by turn, against a real prefix cache."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .formats.durations import duration
from .output import check_output, say, stop, write_json, write_rich

if TYPE_CHECKING:
    from ..probes.cost.prefill_timer import PrefillTimer
    from ..probes.engine.mlx_engine import MLXEngine
    from ..probes.models.model import ReplayModel
    from ..probes.policies.base import Policy
    from ..probes.replay.jobs import ReplaySettings
    from ..probes.replay.plan import PrefillPlan
    from ..probes.replay.replay import Replay
    from ..probes.replay.replay_report import ReplayReport, TurnReport


#: Tokens to prefill that are worth telling before.
LARGE = 200_000


class Engine(StrEnum):
    """What fills the cache."""

    tokens = "tokens"
    mlx = "mlx"


class Stored(StrEnum):
    """What is stored after a turn."""

    prompt = "prompt"
    output = "prompt+output"


class FailOn(StrEnum):
    """The least severe finding that makes the exit code 1."""

    error = "error"
    warning = "warning"
    note = "note"
    never = "never"


def command(
    transcript: options.TranscriptArgument,
    model: options.Model = None,
    template: options.Template = None,
    policy: options.Policies = None,
    engine: Annotated[
        Engine | None,
        typer.Option(
            help="mlx prefills with the real model, tokens only counts. Default: mlx for the bundled model "
            "and for weights below 2 GB, else tokens."
        ),
    ] = None,
    tokenizer: options.Tokenizer = None,
    block_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Tokens per block of a paged cache. Default: the cache of the policy's server, "
            "which is paged with blocks of 256 for oMLX and for policies of no server.",
        ),
    ] = None,
    store: Annotated[
        Stored,
        typer.Option(help="What is stored after a turn: the prompt, or the reply of the transcript as well."),
    ] = Stored.prompt,
    cache_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Most that the cache may hold, such as 64MB.")
    ] = None,
    kv_bits: options.KvBits = None,
    kv_group_size: options.KvGroupSize = 64,
    max_minutes: options.MaxMinutes = None,
    calibration: options.Calibration = None,
    prefill_rate: options.PrefillRate = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare every prefill with a cold one; needs the mlx engine.")
    ] = False,
    explain: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="TURN",
            help="Print one turn in full: both texts, owner, cause, evidence, remedies.",
        ),
    ] = None,
    no_causes: Annotated[
        bool, typer.Option("--no-causes", help="Say where prompts part, and do not look for the causes.")
    ] = False,
    try_remedies: Annotated[
        int | None,
        typer.Option(
            "--try-remedies",
            min=0,
            metavar="N",
            help="Replay the session again with the N remedies that promise most, alone and together. "
            "Default: 3, fewer for a long session.",
        ),
    ] = None,
    fail_on: Annotated[
        FailOn, typer.Option("--fail-on", help="The least severe finding that makes the exit code 1.")
    ] = FailOn.never,
    jobs: Annotated[
        int, typer.Option(min=1, help="Processes for several policies; with the tokens engine only.")
    ] = 1,
    kwargs: options.Kwargs = None,
    special_token: options.SpecialTokens = None,
    now: options.Now = None,
    as_json: options.Json = False,
    output: options.Output = None,
) -> None:
    """Replay a transcript: where each turn parts from the cache, why, and what is computed again.

    Each policy runs against an empty cache of its own. Token counts are counted. Seconds are measured with
    the mlx engine; without it they are predicted, from --prefill-rate or from what `tplaudit calibrate`
    measured of the model.
    """
    from ..probes.cost.calibration import model_identity
    from ..probes.errors import UsageError
    from ..probes.findings import reaches
    from ..probes.models.model import load_model
    from ..probes.policies.registry import parse_policy
    from ..probes.replay.jobs import ReplaySettings
    from .formats.replay_text import draw
    from .formats.turn_text import draw_turn

    options.check_one_stdin([transcript, model, template, tokenizer])
    read = [transcript, model, template, tokenizer, str(calibration) if calibration else None]
    check_output(output, read)
    names = options.policy_names(policy)
    policies = [parse_policy(name) for name in names]
    loaded = load_model(
        model,
        template=template,
        tokenizer=tokenizer,
        special_tokens=options.read_special_tokens(special_token),
        now=options.read_now(now),
    )
    chosen = engine.value if engine else loaded.default_engine
    identity = model_identity(loaded, kv_bits, kv_group_size)
    settings = ReplaySettings(
        transcript,
        options.read_kwargs(kwargs),
        block_size,
        options.read_size(cache_bytes),
        not no_causes,
        store.value,
        prefill_rate,
        None if prefill_rate else options.read_calibration(calibration, identity),
        identity,
        try_remedies,
    )
    _check_sources(settings, calibration, jobs)
    if chosen == "mlx":
        _check_running(settings, jobs)
    else:
        _check_counting(settings, loaded, verify, max_minutes, kv_bits)
    if as_json or explain is not None:  # the tables have them
        for note in loaded.notes:
            say(f"note: {note}")
    if jobs > 1 and len(names) > 1:
        report, code = _in_processes(settings, names, jobs, loaded)
    else:
        with _interrupted_early():
            model_engine = _engine(loaded, kv_bits, kv_group_size) if chosen == "mlx" else None
        report, code = _in_this_process(settings, loaded, policies, model_engine, verify, max_minutes)
    turns = [turn for one in report.policies for turn in one.turns]
    there = explain is None or any(turn.turn == explain for turn in turns)
    if not there and report.complete:
        raise UsageError(
            f"there is no turn {explain}", where="--explain", fix=f"give one from 1 to {_last(turns)}"
        )
    if turns and there:
        if as_json:
            from ..probes.replay.replay_report import to_json

            write_json(to_json(report), output)
        elif explain is not None:
            write_rich(lambda console: draw_turn(report, explain, console), output)
        else:
            write_rich(lambda console: draw(report, console), output)
    if report.error:
        say(f"tplaudit: {report.error}")
    elif not any(turn.error is None for turn in turns):
        say(f"tplaudit: {_nothing_rendered(report)}")
        code = 2
    elif (report.verify is not None and not report.verify.passed) or reaches(report.findings, fail_on.value):
        code = 1
    stop(code)


def _engine(model: ReplayModel, kv_bits: int | None, kv_group_size: int) -> MLXEngine:
    from ..probes.engine.mlx_engine import load_engine

    return load_engine(model, kv_bits=kv_bits, kv_group_size=kv_group_size)


def _check_sources(settings: ReplaySettings, calibration: Path | None, jobs: int) -> None:
    """See that nothing is to be read that cannot be. Raises UsageError where it is."""
    from ..probes.errors import UsageError

    if settings.prefill_rate is not None and calibration is not None:
        raise UsageError(
            "seconds are predicted from one thing", where="--calibration", fix="leave --prefill-rate out"
        )
    if jobs > 1 and (settings.transcript == "-" or Path(settings.transcript).is_fifo()):
        raise UsageError(
            "several processes cannot read one stream", where="--jobs", fix="give the path of a file"
        )


def _check_running(settings: ReplaySettings, jobs: int) -> None:
    """See that nothing is asked of the mlx engine that only the other one does. Raises UsageError."""
    from ..probes.errors import UsageError

    if settings.prefill_rate is not None:
        raise UsageError("the mlx engine measures", where="--prefill-rate", fix="add --engine tokens")
    if jobs > 1:
        raise UsageError("one model runs in one process", where="--jobs", fix="add --engine tokens")


def _check_counting(
    settings: ReplaySettings, model: ReplayModel, verify: bool, max_minutes: float | None, kv_bits: int | None
) -> None:
    """See that nothing is asked of the tokens engine that only a model can do. Raises UsageError."""
    from ..probes.errors import UsageError

    if verify:
        raise UsageError(
            "there is nothing to verify without a model", where="--verify", fix="add --engine mlx"
        )
    if max_minutes is not None:
        raise UsageError("no model runs", where="--max-minutes", fix="add --engine mlx, or leave it out")
    if settings.capacity_bytes is not None and (kv_bits is not None or not _has_sizes(model)):
        what = (
            "the model's config.json does not say how large the state of its layers is"
            if kv_bits is None
            else "how large quantised keys and values are is not known without the model"
        )
        raise UsageError(what, where="--cache-bytes", fix="leave it out, or use --engine mlx")


def _in_processes(
    settings: ReplaySettings, names: Sequence[str], jobs: int, loaded: ReplayModel
) -> tuple[ReplayReport, int]:
    """Replay the policies in several processes; return the report and the exit code so far."""
    from rich.console import Console

    from ..probes.replay.jobs import replay_in_processes

    try:
        with Console(stderr=True).status("replaying …", spinner="dots"):
            report = replay_in_processes(settings, loaded, names, jobs)
    except KeyboardInterrupt:
        say("tplaudit: interrupted; several processes report at the end only")
        raise
    return report, 0 if report.complete else 2


def _in_this_process(
    settings: ReplaySettings,
    loaded: ReplayModel,
    policies: Sequence[Policy],
    engine: MLXEngine | None,
    verify: bool,
    max_minutes: float | None,
) -> tuple[ReplayReport, int]:
    """Replay all policies side by side; return the report and the exit code so far."""
    from ..probes.cost.prefill_timer import PrefillTimer
    from ..probes.errors import InputError
    from ..probes.replay.remedies import with_tried_remedies
    from ..probes.replay.replay import Replay
    from ..probes.transcripts.reader import open_transcript

    transcript = open_transcript(settings.transcript).with_kwargs(settings.kwargs)
    new_replay = partial(
        Replay,
        transcript,
        loaded,
        policies,
        block_size=settings.block_size,
        capacity_bytes=settings.capacity_bytes,
        store=settings.store,
    )
    prefilling = PrefillTimer(
        engine,
        rate=settings.prefill_rate,
        calibration=settings.calibration,
        model=settings.identity,
        max_seconds=None if max_minutes is None else 60 * max_minutes,
    )
    plan = None
    if engine:
        with _interrupted_early():
            plan = _counted(new_replay(layout=engine.layout, causes=False), policies)
        large = loaded.is_large or max_minutes is not None or sum(plan.tokens.values()) >= LARGE
        if large:
            say(f"note: {_announced(plan, prefilling)}")
    replay = new_replay(engine=engine, prefilling=prefilling, verify=verify, causes=settings.causes)
    failure: str | None = None
    code = 0
    try:
        _run(replay, plan)
    except InputError as error:
        failure, code = str(error), 2
    except KeyboardInterrupt:
        failure, code = f"interrupted {_how_far(replay, plan)}", 130
    report = replay.report(complete=failure is None, error=failure)
    return with_tried_remedies(replay, report, settings.try_remedies), code


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
    from rich.console import Console

    from ..probes.errors import InputError
    from ..probes.replay.plan import PrefillPlan

    turns: list[tuple[TurnReport, ...]] = []
    with Console(stderr=True).status("counting …", spinner="dots"), suppress(InputError):
        turns.extend(replay.turns())
    return PrefillPlan.of([policy.name for policy in policies], turns)


def _announced(plan: PrefillPlan, prefilling: PrefillTimer) -> str:
    """Say what is going to be prefilled, and how long it takes where that can be told."""
    tokens = ", ".join(f"{count:,} tokens under {policy}" for policy, count in plan.tokens.items())
    said = f"{len(plan.turns)} turns are going to prefill {tokens} (counted)"
    cost = prefilling.cost
    return f"{said}, in about {duration(plan.seconds(cost))} (predicted from a calibration)" if cost else said


def _run(replay: Replay, plan: PrefillPlan | None) -> None:
    """Run all turns, with progress on stderr."""
    from rich.console import Console

    console = Console(stderr=True)
    started = time.monotonic()
    with console.status("replaying …", spinner="dots") as status:
        for number, turns in enumerate(replay.turns(), 1):
            tokens = max((turn.prompt_tokens or 0 for turn in turns), default=0)
            of = f" of {len(plan.turns)}" if plan else ""
            spent = time.monotonic() - started
            left = _left(replay, plan, number, spent)
            status.update(f"turn {number}{of}: {tokens:,} tokens, {duration(spent)}{left}")


def _left(replay: Replay, plan: PrefillPlan | None, number: int, spent: float) -> str:
    """Tell the remaining time by what the turns so far took, weighed by what each one has to compute."""
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


def _has_sizes(model: ReplayModel) -> bool:
    predicted = model.state_size
    return predicted.bytes_per_token is not None and predicted.bytes_per_snapshot is not None


def _nothing_rendered(report: ReplayReport) -> str:
    first = report.policies[0]
    if not first.turns:
        return f"{report.transcript}: there is no request in it; give a transcript with messages"
    return f"no turn rendered under any policy ({first.turns[0].error}); try another --policy or template"


def _last(turns: Sequence[TurnReport]) -> int:
    return max((turn.turn for turn in turns), default=1)
