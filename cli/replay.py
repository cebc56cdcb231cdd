"""`tplaudit replay`: a transcript, turn by turn, against a real prefix cache."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from . import options
from .options import CACHE, OUTPUT, PREFILL, SERVER, FailOn
from .output import check_output, say, stop, write_json, write_rich

if TYPE_CHECKING:
    from ..probes.conversation import Transcript
    from ..probes.models.model import ReplayModel
    from ..probes.policies.base import Policy
    from ..probes.replay.actual.server_log import ServerLog
    from ..probes.replay.jobs import ReplaySettings
    from ..probes.replay.replay_report import RankedCandidate, ReplayReport

#: Stands for the policy that fits best to what the server said of its reuse.
AUTO = "auto"


class Engine(StrEnum):
    """What fills the cache."""

    tokens = "tokens"
    mlx = "mlx"


class Stored(StrEnum):
    """What is stored after a turn."""

    prompt = "prompt"
    output = "prompt+output"


@dataclass(frozen=True, slots=True)
class ReplayOptions(options.TranscriptOptions):
    """What `tplaudit replay` is given."""

    server_log: Annotated[
        Path | None,
        options.option(
            SERVER,
            "The server's log, where its lines say how much was reused; it is compared with what is counted.",
            "--server-log",
            metavar="FILE",
            callback=options.named,
        ),
    ] = None
    block_size: Annotated[
        int | None,
        options.option(
            CACHE,
            "Tokens per block of a paged cache. Default: the cache of the policy's server, "
            "which is paged with blocks of 256 for oMLX and for generic policies.",
            min=1,
        ),
    ] = None
    store: Annotated[
        Stored | None,
        options.option(
            CACHE,
            "What is stored after a turn: the prompt alone, or the prompt and the transcript's reply. "
            "Default: prompt; with --policy auto, both are tried.",
            metavar="|".join(Stored),
        ),
    ] = None
    cache_bytes: Annotated[
        str | None, options.option(CACHE, "Most that the cache may hold, such as 64MB.", metavar="SIZE")
    ] = None
    engine: Annotated[
        Engine | None,
        options.option(
            PREFILL,
            "mlx prefills with the real model; tokens only counts. Default: mlx for the bundled model "
            "and for weights below 2 GB, else tokens.",
            metavar="|".join(Engine),
        ),
    ] = None
    kv_bits: options.KvBits = None
    kv_group_size: options.KvGroupSize = 64
    max_minutes: options.MaxMinutes = None
    calibration: options.Calibration = None
    prefill_rate: options.PrefillRate = None
    verify: Annotated[
        bool,
        options.option(PREFILL, "Compare every prefill with a cold one; needs the mlx engine.", "--verify"),
    ] = False
    jobs: Annotated[
        int, options.option(PREFILL, "Processes for several policies; with the tokens engine only.", min=1)
    ] = 1
    explain: Annotated[
        int | None,
        options.option(
            OUTPUT,
            "Print one turn in full: both texts, owner, cause, evidence, remedies.",
            min=1,
            metavar="TURN",
        ),
    ] = None
    conversation: Annotated[
        int | None,
        options.option(OUTPUT, "Print one conversation; the cache sees all of them.", min=1, metavar="N"),
    ] = None
    no_causes: Annotated[
        bool,
        options.option(OUTPUT, "Say where prompts diverge, and do not look for the causes.", "--no-causes"),
    ] = False
    fail_on: options.Threshold = FailOn.never
    as_json: options.Json = False
    output: options.Output = None
    try_remedies: Annotated[
        int | None,
        options.option(
            OUTPUT,
            "Replay the session again with the N remedies that promise most, alone and together. "
            "Default: 3, fewer for a long session.",
            "--try-remedies",
            min=0,
            metavar="N",
        ),
    ] = None


@options.taken_from(ReplayOptions)
def command(given: ReplayOptions) -> None:
    """Replay a transcript: where each prompt diverges from the cache, why, and what is computed again.

    Each policy runs against an empty cache of its own. Tokens are counted. With the mlx engine seconds are
    measured. Without it they are predicted: from --prefill-rate, or from what `tplaudit calibrate` measured
    of the model.
    """
    _check_files(given)
    _policies(given)  # a misspelt name is noticed before a large model is loaded
    _check_installed(given)
    model = _load_model(given)
    engine = given.engine.value if given.engine else _default_engine(model)
    settings = _settings(given, model)
    _check_engine(given, settings, model, engine)
    transcript, log = _read(settings)
    ranking = None
    if AUTO in (given.policy or ()):
        from .replay_run import ranked_servers

        ranking = ranked_servers(settings, model, transcript, log, settings.store if given.store else None)
        given, settings = _as_ranked(given, settings, ranking.candidates[0])
    if given.as_json or given.explain is not None:  # the tables have them
        for note in model.notes:
            say(f"note: {note}")
    report, code = _run(given, settings, model, engine, transcript, log)
    report = replace(report, ranking=ranking)
    _write(given, report)
    stop(_exit_code(given, report, code))


def _check_files(given: ReplayOptions) -> None:
    """See that no input is read twice or overwritten. Raises UsageError where one is."""
    names = [given.transcript, given.model, given.template, given.tokenizer]
    names.append(str(given.server_log) if given.server_log else None)
    options.check_one_stdin(names)
    check_output(given.output, [*names, str(given.calibration) if given.calibration else None])


def _check_installed(given: ReplayOptions) -> None:
    """See that a model can run where one is asked for. Raises UsageError where it cannot."""
    from ..probes import extras

    if given.engine is Engine.mlx:
        extras.check_mlx("--engine mlx")
    elif given.verify and given.engine is None:
        extras.check_mlx("--verify")


def _default_engine(model: ReplayModel) -> str:
    """Return the engine of a model; what counts tokens, with a note, where no model can run."""
    from ..probes import extras

    if model.default_engine == "mlx" and not extras.has_mlx():
        say(f"note: mlx-lm is not installed, so tokens are only counted; to run the model, {extras.INSTALL}")
        return "tokens"
    return model.default_engine


def _policies(given: ReplayOptions) -> list[Policy]:
    from ..probes.policies.registry import parse_policy

    names = options.policy_names(given.policy, given.policy_code)
    return [parse_policy(name) for name in names if name != AUTO]


def _read(settings: ReplaySettings) -> tuple[Transcript, ServerLog | None]:
    """Open the transcript, and read the server's log. Raises InputError where one cannot be read."""
    from ..probes.transcripts.reader import open_transcript

    log = settings.read_log()
    return open_transcript(settings.transcript).with_kwargs(settings.kwargs), log


def _as_ranked(
    given: ReplayOptions, settings: ReplaySettings, best: RankedCandidate
) -> tuple[ReplayOptions, ReplaySettings]:
    """Return what is given with the best candidate in the place of `auto`."""
    names = [best.policy if name == AUTO else name for name in options.policy_names(given.policy)]
    return (
        replace(given, policy=names),
        replace(settings, store=best.store, block_size=best.block_size),
    )


def _load_model(given: ReplayOptions) -> ReplayModel:
    from ..probes.models.model import load_model

    return load_model(
        given.model,
        template=given.template,
        tokenizer=given.tokenizer,
        special_tokens=options.read_special_tokens(given.special_token),
        now=options.read_now(given.now),
    )


def _settings(given: ReplayOptions, model: ReplayModel) -> ReplaySettings:
    from ..probes.cost.calibration import model_identity
    from ..probes.replay.jobs import ReplaySettings

    identity = model_identity(model, given.kv_bits, given.kv_group_size)
    return ReplaySettings(
        given.transcript,
        options.read_kwargs(given.kwargs),
        given.block_size,
        options.read_size(given.cache_bytes),
        not given.no_causes,
        (given.store or Stored.prompt).value,
        given.prefill_rate,
        None if given.prefill_rate else options.read_calibration(given.calibration, identity),
        identity,
        given.try_remedies,
        str(given.server_log) if given.server_log else None,
    )


def _check_engine(given: ReplayOptions, settings: ReplaySettings, model: ReplayModel, engine: str) -> None:
    """See that the options agree with each other and with the engine. Raises UsageError where not."""
    _check_sources(given)
    if engine == "mlx":
        _check_running(given)
    else:
        _check_counting(given, settings, model)


def _check_sources(given: ReplayOptions) -> None:
    from ..probes.errors import UsageError

    if given.prefill_rate is not None and given.calibration is not None:
        raise UsageError(
            "seconds are predicted from one thing", where="--calibration", fix="leave --prefill-rate out"
        )
    if given.jobs > 1 and (given.transcript == "-" or Path(given.transcript).is_fifo()):
        raise UsageError(
            "several processes cannot read one stream", where="--jobs", fix="give the path of a file"
        )


def _check_running(given: ReplayOptions) -> None:
    """Refuse what only the tokens engine does."""
    from ..probes.errors import UsageError

    if given.prefill_rate is not None:
        raise UsageError("the mlx engine measures", where="--prefill-rate", fix="add --engine tokens")
    if given.jobs > 1:
        raise UsageError("one model runs in one process", where="--jobs", fix="add --engine tokens")


def _check_counting(given: ReplayOptions, settings: ReplaySettings, model: ReplayModel) -> None:
    """Refuse what only a running model does."""
    from ..probes.errors import UsageError

    if given.verify:
        raise UsageError(
            "there is nothing to verify without a model", where="--verify", fix="add --engine mlx"
        )
    if given.max_minutes is not None:
        raise UsageError("no model runs", where="--max-minutes", fix="add --engine mlx, or leave it out")
    if settings.capacity_bytes is None:
        return
    if given.kv_bits is not None:
        what = "the size of quantised keys and values is not known without the model"
    elif not _has_sizes(model):
        what = "the model's config.json does not say how large the state of its layers is"
    else:
        return
    raise UsageError(what, where="--cache-bytes", fix="leave it out, or use --engine mlx")


def _has_sizes(model: ReplayModel) -> bool:
    predicted = model.state_size
    return predicted.bytes_per_token is not None and predicted.bytes_per_snapshot is not None


def _run(
    given: ReplayOptions,
    settings: ReplaySettings,
    model: ReplayModel,
    engine: str,
    transcript: Transcript,
    log: ServerLog | None,
) -> tuple[ReplayReport, int]:
    from .replay_run import in_processes, in_this_process, load_engine

    policies = _policies(given)
    if given.jobs > 1 and len(policies) > 1:
        return in_processes(
            settings, options.policy_names(given.policy, given.policy_code), given.jobs, model
        )
    running = load_engine(model, given.kv_bits, given.kv_group_size) if engine == "mlx" else None
    return in_this_process(
        settings, model, policies, running, given.verify, given.max_minutes, transcript, log
    )


def _write(given: ReplayOptions, report: ReplayReport) -> None:
    from ..probes.errors import UsageError

    numbers = {turn.turn for policy in report.policies for turn in policy.turns}
    turn = given.explain
    if turn is not None and turn not in numbers:
        if report.complete:
            last = max(numbers, default=1)
            raise UsageError(f"there is no turn {turn}", where="--explain", fix=f"give one from 1 to {last}")
        return
    if not numbers:
        return
    _check_conversation(given.conversation, report)
    if given.as_json:
        from ..probes.replay.replay_report import to_json

        write_json(to_json(report), given.output)
    elif turn is not None:
        from .formats.turn_text import draw_turn

        write_rich(lambda console: draw_turn(report, turn, console), given.output)
    else:
        from .formats.replay_text import draw

        write_rich(lambda console: draw(report, console, given.conversation), given.output)


def _check_conversation(number: int | None, report: ReplayReport) -> None:
    """Raise UsageError where there is no such conversation."""
    from ..probes.errors import UsageError

    last = len(report.policies[0].conversations)
    if number is not None and number > last:
        raise UsageError(
            f"there is no conversation {number}", where="--conversation", fix=f"give one from 1 to {last}"
        )


def _exit_code(given: ReplayOptions, report: ReplayReport, code: int) -> int:
    """Say what went wrong, and return the exit code."""
    from ..probes.findings import reaches

    turns = [turn for policy in report.policies for turn in policy.turns]
    if report.error:
        say(f"tplaudit: {report.error}")
        return code
    if all(turn.error is not None for turn in turns):
        say(f"tplaudit: {_nothing_rendered(report)}")
        return 2
    if report.verify is not None and not report.verify.passed:
        return 1
    return 1 if reaches(report.findings, given.fail_on.value) else code


def _nothing_rendered(report: ReplayReport) -> str:
    first = report.policies[0]
    if not first.turns:
        return f"{report.transcript}: there is no request in it; give a transcript with messages"
    return f"no turn rendered under any policy ({first.turns[0].error}); try another --policy or template"
