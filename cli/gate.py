"""`tplaudit gate`: whether a change of a template fixes what it should and breaks nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .options import INPUT, OUTPUT, FailOn
from .output import stop, write_rich, write_text

if TYPE_CHECKING:
    from ..probes.gate.budgets import Budget
    from ..probes.gate.report import GateReport
    from ..probes.gate.settings import GateSettings
    from .formats.gate.outputs import Outputs

COMPARE = "Compare"
_BUDGETS = "Budgets"

_LIMITS = "a number, or base, base+5%, base-200 and the like. Repeatable."


def _limit(what: str) -> typer.models.OptionInfo:
    found: typer.models.OptionInfo = typer.Option(
        metavar="LIMIT[@POLICY[@TRANSCRIPT]]",
        callback=options.given,
        help=f"{what}: {_LIMITS}",
        rich_help_panel=_BUDGETS,
    )
    return found


@dataclass(frozen=True, slots=True)
class GateOptions:
    """What `tplaudit gate` is given."""

    heads: Annotated[
        list[str] | None, options.argument("HEAD", "Instead of --head; for several templates at once.")
    ] = None
    base: Annotated[
        str | None,
        options.option(
            INPUT,
            "What was before: a model directory, a .jinja file, a tokenizer_config.json, - for stdin, "
            "git:REV:PATH, or git:REV for the path of HEAD.",
            metavar="OLD",
            callback=options.named,
        ),
    ] = None
    head: Annotated[
        str | None,
        options.option(INPUT, "What is now, in the same forms.", metavar="NEW", callback=options.named),
    ] = None
    tokenizer: options.Tokenizer = None
    kwargs: options.Kwargs = None
    special_token: options.SpecialTokens = None
    now: options.Now = None
    config: Annotated[
        Path | None,
        options.option(
            INPUT,
            "Settings. Default: tplaudit.toml, else pyproject.toml, in this folder.",
            metavar="FILE",
            callback=options.given,
        ),
    ] = None
    transcripts: Annotated[
        str | None,
        options.option(
            COMPARE,
            "Transcripts to render and replay with both; a folder or one file.",
            metavar="DIR",
            callback=options.named,
        ),
    ] = None
    policy: Annotated[
        list[str] | None,
        options.option(
            COMPARE,
            "A server under whose rules transcripts are replayed; repeat for several, or all. "
            "Default with transcripts: as-is and omlx.",
            "--policy",
            "-p",
            metavar="NAME[:OPTION=VALUE,…]",
            callback=options.given,
        ),
    ] = None
    block_size: Annotated[
        int | None,
        options.option(
            COMPARE, "Tokens per block of a paged cache. Default: the cache of each policy's server.", min=1
        ),
    ] = None
    llamacpp: Annotated[
        bool,
        options.option(
            COMPARE, "Ask llama.cpp's engine too, where it is installed.", "--llamacpp/--no-llamacpp"
        ),
    ] = True
    allow: Annotated[
        list[str] | None,
        options.option(
            COMPARE,
            "A change that is meant: prompts by conversation or group (changed:tools/*), or by rule "
            "(changed:generation-prompt); new for templates that OLD does not have. Repeatable.",
            metavar="changed:PATTERN|new",
            callback=options.given,
        ),
    ] = None
    max_avoidable_tokens: Annotated[list[str] | None, _limit("Avoidable tokens of a transcript")] = None
    max_reprefill_ratio: Annotated[list[str] | None, _limit("Re-prefilled part of all tokens, 0 to 1")] = None
    min_divergence_depth: Annotated[list[str] | None, _limit("Tokens shared at the earliest divergence")] = (
        None
    )
    max_seconds: Annotated[list[str] | None, _limit("Predicted seconds of prefill")] = None
    prefill_rate: Annotated[
        float | None, options.option(_BUDGETS, "Tokens per second, for predicted seconds.", metavar="N")
    ] = None
    calibration: Annotated[
        str | None,
        options.option(
            _BUDGETS,
            "Predict seconds from what tplaudit calibrate measured, here or on another machine. "
            "Default: what it measured of this model on this machine.",
            metavar="FILE",
            callback=options.named,
        ),
    ] = None
    fail_on: options.Threshold = FailOn.error
    formats: Annotated[
        list[str] | None,
        options.option(
            OUTPUT,
            "text, json, markdown, sarif, junit or github, to stdout or to a file. Repeatable. "
            "Default: text to stdout.",
            "--format",
            metavar="NAME[=FILE]",
            callback=options.given,
        ),
    ] = None
    summary: Annotated[
        bool,
        options.option(
            OUTPUT, "Append Markdown to $GITHUB_STEP_SUMMARY where it is set.", "--summary/--no-summary"
        ),
    ] = True
    as_json: options.Json = False
    output: options.Output = None


@options.taken_from(GateOptions)
def command(given: GateOptions) -> None:
    """Compare what two versions of a template do, and fail where the new one breaks or changes something.

    Not the texts are compared but what they do: with system turns at every place, with reasoning, and the
    prompts of some forty conversations with and without tools. Better is fixed, worse is regressed, other
    prompts are changed, and another text with the same prompts is cosmetic.
    """
    from .formats.gate.outputs import read_outputs

    outputs = read_outputs(given.formats, given.as_json, given.output)
    several = _settings(given)
    _check_files(given, several, outputs)
    reports = _reports(given, several)
    outputs.write(reports, write_text, write_rich)
    if given.summary and os.environ.get("GITHUB_STEP_SUMMARY"):
        _append_summary(Path(os.environ["GITHUB_STEP_SUMMARY"]), reports)
    failed = any(report.verdict == "fail" for report in reports)
    stop(int(given.fail_on is not FailOn.never and failed))


def _settings(given: GateOptions) -> list[GateSettings]:
    from ..probes.errors import UsageError
    from ..probes.gate.allowances import read_allowances
    from ..probes.gate.settings import find_settings, read_settings

    if given.heads and given.head is not None:
        raise UsageError("NEW is given twice", where="--head", fix="leave --head out")
    settings = read_settings(given.config) if given.config is not None else find_settings(Path())
    settings = settings.over(
        base=given.base,
        head=given.head,
        transcripts=given.transcripts,
        policies=tuple(options.policy_names(given.policy)) if given.policy else (),
        tokenizer=given.tokenizer,
        kwargs=options.read_kwargs(given.kwargs),
        block_size=given.block_size,
        prefill_rate=given.prefill_rate,
        calibration=given.calibration,
        budgets=_budgets(given),
        allowances=read_allowances(given.allow or ()),
    )
    return [settings.over(head=name) for name in given.heads or ()] or [settings]


def _budgets(given: GateOptions) -> tuple[Budget, ...]:
    from ..probes.gate.budgets import BUDGETS, read_budget_option

    limits = {name: getattr(given, name.replace("-", "_")) for name in BUDGETS}
    return tuple(read_budget_option(name, text) for name, texts in limits.items() for text in texts or ())


def _check_files(given: GateOptions, several: Sequence[GateSettings], outputs: Outputs) -> None:
    """See that stdin is read once, and that no report is written over what is read."""
    from ..probes.errors import UsageError
    from ..probes.gate.observe.replays import transcripts_in
    from ..probes.gate.sources import files_of

    if [name for each in several for name in (each.base, each.head)].count("-") > 1:
        raise UsageError(
            "stdin can be read only once, and it would be for several templates",
            where="-",
            fix="give the path of a file for all but one",
        )
    named = (name for each in several for name in (each.base, each.head, each.tokenizer, each.calibration))
    files = [file for name in dict.fromkeys(filter(None, named)) for file in files_of(name)]
    folder = several[0].transcripts
    transcripts = transcripts_in(Path(folder)) if folder is not None else ()
    settings = [] if given.config is None else [given.config]
    outputs.check([*files, *map(str, (*transcripts, *settings))])


def _reports(given: GateOptions, several: Sequence[GateSettings]) -> list[GateReport]:
    from ..probes.gate.gate import Gate, run_gate
    from ..probes.gate.observe.behaviour import CLOCK

    day = options.read_now(given.now)
    special_tokens = options.read_special_tokens(given.special_token)
    today = None if day is None else day.date()
    return [
        run_gate(Gate(each, special_tokens, day or CLOCK, today, given.llamacpp, given.fail_on.value))
        for each in several
    ]


def _append_summary(path: Path, reports: Sequence[GateReport]) -> None:
    from ..probes.errors import UsageError
    from .formats.gate.markdown import markdown

    try:
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(markdown(reports))
    except OSError as error:
        raise UsageError(
            (error.strerror or "cannot be written").lower(),
            where="$GITHUB_STEP_SUMMARY",
            fix="add --no-summary",
        ) from None
