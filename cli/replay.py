"""`tplaudit replay`: a transcript, turn by turn, against a real prefix cache."""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .output import check_output, say, stop, write_json, write_rich

if TYPE_CHECKING:
    from ..probes.jobs import Settings
    from ..probes.models import ReplayModel
    from ..probes.policies.base import Policy
    from ..probes.replay import Replay
    from ..probes.report import ReplayReport, TurnReport


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
    prefill_rate: Annotated[
        float | None,
        typer.Option(
            min=1,
            metavar="TOK_PER_S",
            help="Predict seconds from this many tokens per second; with the tokens engine only.",
        ),
    ] = None,
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
    the mlx engine, and predicted from --prefill-rate where it is given.
    """
    from ..probes.errors import UsageError
    from ..probes.findings import reaches
    from ..probes.jobs import Settings
    from ..probes.models import load_model
    from ..probes.policies import parse_policy
    from .formats.replay_text import draw
    from .formats.turn_text import draw_turn

    options.check_one_stdin([transcript, model, template, tokenizer])
    check_output(output, [transcript, model, template])
    names = options.policy_names(policy)
    policies = [parse_policy(name) for name in names]
    settings = Settings(
        transcript,
        options.read_kwargs(kwargs),
        block_size,
        options.read_size(cache_bytes),
        not no_causes,
        store.value,
        prefill_rate,
    )
    loaded = load_model(
        model,
        template=template,
        tokenizer=tokenizer,
        special_tokens=options.read_special_tokens(special_token),
        now=options.read_now(now),
    )
    chosen = engine.value if engine else loaded.default_engine
    if verify and chosen != "mlx":
        raise UsageError(
            "there is nothing to verify without a model", where="--verify", fix="add --engine mlx"
        )
    if settings.capacity_bytes is not None and chosen == "tokens" and not _has_sizes(loaded):
        raise UsageError(
            "the model's config.json does not say how large the state of its layers is",
            where="--cache-bytes",
            fix="leave it out, or use --engine mlx",
        )
    if prefill_rate is not None and chosen == "mlx":
        raise UsageError("the mlx engine measures", where="--prefill-rate", fix="add --engine tokens")
    if jobs > 1 and chosen == "mlx":
        raise UsageError("one model runs in one process", where="--jobs", fix="add --engine tokens")
    if jobs > 1 and transcript == "-":
        raise UsageError(
            "several processes cannot read one stdin", where="--jobs", fix="give the path of a file"
        )
    for note in loaded.notes:
        say(f"note: {note}")
    if jobs > 1 and len(names) > 1:
        report, code = _in_processes(settings, names, jobs, loaded)
    else:
        report, code = _in_this_process(settings, loaded, policies, chosen, verify)
    turns = [turn for one in report.policies for turn in one.turns]
    if explain is not None and not any(turn.turn == explain for turn in turns):
        raise UsageError(
            f"there is no turn {explain}", where="--explain", fix=f"give one from 1 to {_last(turns)}"
        )
    if turns:
        if as_json:
            from ..probes.report import to_json

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


def _in_processes(
    settings: Settings, names: Sequence[str], jobs: int, loaded: ReplayModel
) -> tuple[ReplayReport, int]:
    """Replay the policies in several processes; return the report and the exit code so far."""
    from rich.console import Console

    from ..probes.jobs import replay_in_processes

    try:
        with Console(stderr=True).status("replaying …", spinner="dots"):
            report = replay_in_processes(settings, loaded, names, jobs)
    except KeyboardInterrupt:
        say("tplaudit: interrupted; several processes report at the end only")
        raise
    return report, 0 if report.complete else 2


def _in_this_process(
    settings: Settings, loaded: ReplayModel, policies: Sequence[Policy], engine: str, verify: bool
) -> tuple[ReplayReport, int]:
    """Replay all policies side by side; return the report and the exit code so far."""
    from ..probes.errors import InputError
    from ..probes.replay import Replay
    from ..probes.transcripts import open_transcript

    replay = Replay(
        open_transcript(settings.transcript).with_kwargs(settings.kwargs),
        loaded,
        policies,
        block_size=settings.block_size,
        engine=loaded.load_engine() if engine == "mlx" else None,
        capacity_bytes=settings.capacity_bytes,
        store=settings.store,
        prefill_rate=settings.prefill_rate,
        verify=verify,
        causes=settings.causes,
    )
    failure: str | None = None
    code = 0
    try:
        _run(replay)
    except InputError as error:
        failure, code = str(error), 2
    except KeyboardInterrupt:
        failure, code = "interrupted", 130
    return replay.report(complete=failure is None, error=failure), code


def _run(replay: Replay) -> None:
    """Run all turns, with progress on stderr."""
    from rich.console import Console

    console = Console(stderr=True)
    started = time.monotonic()
    with console.status("replaying …", spinner="dots") as status:
        for number, turns in enumerate(replay.turns(), 1):
            tokens = max((turn.prompt_tokens or 0 for turn in turns), default=0)
            status.update(f"turn {number}: {tokens:,} tokens, {time.monotonic() - started:.0f} s")


def _has_sizes(model: ReplayModel) -> bool:
    predicted = model.footprint
    return predicted.bytes_per_token is not None and predicted.bytes_per_snapshot is not None


def _nothing_rendered(report: ReplayReport) -> str:
    first = report.policies[0]
    if not first.turns:
        return f"{report.transcript}: there is no request in it; give a transcript with messages"
    return f"no turn rendered under any policy ({first.turns[0].error}); try another --policy or template"


def _last(turns: Sequence[TurnReport]) -> int:
    return max((turn.turn for turn in turns), default=1)
