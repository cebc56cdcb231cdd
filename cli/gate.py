"""`tplaudit gate`: whether a change of a template fixes what it should and breaks nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .options import FailOn, Threshold
from .output import stop, write_rich, write_text

if TYPE_CHECKING:
    from ..probes.gate.budgets import Budget
    from ..probes.gate.report import GateReport
    from ..probes.gate.settings import GateSettings

_LIMIT = "LIMIT[@POLICY[@TRANSCRIPT]]"
_LIMITS = "a number, or base, base+5%, base-200 and the like. Repeatable."


def command(
    heads: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="HEAD",
            callback=options.named,
            help="Instead of --head; for several templates at once.",
            show_default=False,
        ),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            metavar="OLD",
            callback=options.named,
            help="What was before: a model directory, a .jinja file, a tokenizer_config.json, - for stdin, "
            "git:REV:PATH, or git:REV for the path of HEAD.",
        ),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(metavar="NEW", callback=options.named, help="What is now, in the same forms."),
    ] = None,
    transcripts: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            callback=options.named,
            help="Transcripts to render and replay with both; a folder or one file.",
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            metavar="NAME[:OPTION=VALUE,…]",
            callback=options.given,
            help="A server under whose rules transcripts are replayed; repeat for several, or all. "
            "Default with transcripts: as-is and omlx.",
        ),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="changed:PATTERN|new",
            callback=options.given,
            help="A change that is meant: prompts by conversation or group (changed:tools/*), or by rule "
            "(changed:generation-prompt); new for templates that OLD does not have. Repeatable.",
        ),
    ] = None,
    max_avoidable_tokens: Annotated[
        list[str] | None,
        typer.Option(
            metavar=_LIMIT, callback=options.given, help=f"Avoidable tokens of a transcript: {_LIMITS}"
        ),
    ] = None,
    max_reprefill_ratio: Annotated[
        list[str] | None,
        typer.Option(
            metavar=_LIMIT, callback=options.given, help=f"Re-prefilled part of all tokens, 0 to 1: {_LIMITS}"
        ),
    ] = None,
    min_divergence_depth: Annotated[
        list[str] | None,
        typer.Option(
            metavar=_LIMIT,
            callback=options.given,
            help=f"Tokens shared at the earliest divergence: {_LIMITS}",
        ),
    ] = None,
    max_seconds: Annotated[
        list[str] | None,
        typer.Option(metavar=_LIMIT, callback=options.given, help=f"Predicted seconds of prefill: {_LIMITS}"),
    ] = None,
    prefill_rate: Annotated[
        float | None, typer.Option(metavar="N", help="Tokens per second, for predicted seconds.")
    ] = None,
    calibration: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            callback=options.named,
            help="Predict seconds from what tplaudit calibrate measured, here or on another machine. "
            "Default: what it measured of this model on this machine.",
        ),
    ] = None,
    tokenizer: options.Tokenizer = None,
    block_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Tokens per block of a paged cache. Default: the cache of each policy's server.",
        ),
    ] = None,
    kwargs: options.Kwargs = None,
    special_token: options.SpecialTokens = None,
    now: options.Now = None,
    llamacpp: Annotated[
        bool,
        typer.Option("--llamacpp/--no-llamacpp", help="Ask llama.cpp's engine too, where it is installed."),
    ] = True,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            callback=options.given,
            help="Settings. Default: tplaudit.toml, else pyproject.toml, in this folder.",
        ),
    ] = None,
    fail_on: Threshold = FailOn.error,
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            metavar="NAME[=FILE]",
            callback=options.given,
            help="text, json, markdown, sarif, junit or github, to stdout or to a file. Repeatable. "
            "Default: text to stdout.",
        ),
    ] = None,
    summary: Annotated[
        bool,
        typer.Option(
            "--summary/--no-summary", help="Append Markdown to $GITHUB_STEP_SUMMARY where it is set."
        ),
    ] = True,
    as_json: options.Json = False,
    output: options.Output = None,
) -> None:
    """Compare what two versions of a template do, and fail where the new one breaks or changes something.

    Not the texts are compared but what they do: with system turns at every place, with reasoning, and the
    prompts of some forty conversations with and without tools. Better is fixed, worse is regressed, other
    prompts are changed, and another text with the same prompts is cosmetic.
    """
    from ..probes.errors import UsageError
    from ..probes.gate.gate import Gate, run_gate
    from ..probes.gate.observe.behaviour import CLOCK
    from ..probes.gate.settings import find_settings, read_settings
    from .formats.gate.outputs import read_outputs

    outputs = read_outputs(formats, as_json, output)
    if heads and head is not None:
        raise UsageError("NEW is given twice", where="--head", fix="leave --head out")
    limits = {
        "max-avoidable-tokens": max_avoidable_tokens,
        "max-reprefill-ratio": max_reprefill_ratio,
        "min-divergence-depth": min_divergence_depth,
        "max-seconds": max_seconds,
    }
    settings = read_settings(config) if config is not None else find_settings(Path())
    settings = settings.over(
        base=base,
        transcripts=transcripts,
        policies=tuple(options.policy_names(policy)) if policy else (),
        tokenizer=tokenizer,
        kwargs=options.read_kwargs(kwargs),
        block_size=block_size,
        prefill_rate=prefill_rate,
        calibration=calibration,
        budgets=_budgets(limits),
        **_allowances(allow),
    )
    several = _for_each_head(settings, heads or ([head] if head is not None else []))
    _check_stdin(several)
    outputs.check([*_read_files(several), *([str(config)] if config is not None else [])])
    day = options.read_now(now)
    reports = [
        run_gate(
            Gate(
                named,
                options.read_special_tokens(special_token),
                day or CLOCK,
                None if day is None else day.date(),
                llamacpp,
                fail_on.value,
            )
        )
        for named in several
    ]
    outputs.write(reports, write_text, write_rich)
    if summary and os.environ.get("GITHUB_STEP_SUMMARY"):
        _append_summary(Path(os.environ["GITHUB_STEP_SUMMARY"]), reports)
    stop(int(fail_on is not FailOn.never and any(report.verdict == "fail" for report in reports)))


def _check_stdin(several: Sequence[GateSettings]) -> None:
    from ..probes.errors import UsageError

    if [name for each in several for name in (each.base, each.head)].count("-") > 1:
        raise UsageError(
            "stdin can be read only once, and it would be for several templates",
            where="-",
            fix="give the path of a file for all but one",
        )


def _for_each_head(settings: GateSettings, heads: Sequence[str]) -> list[GateSettings]:
    return [settings.over(head=name) for name in heads] or [settings]


def _read_files(several: Sequence[GateSettings]) -> list[str]:
    """Return the files that are read, so that no report is written over one of them."""
    from ..probes.gate.observe.replays import transcripts_in
    from ..probes.gate.sources import files_of

    names = dict.fromkeys(
        name
        for each in several
        for name in (each.base, each.head, each.tokenizer, each.calibration)
        if name is not None
    )
    folder = several[0].transcripts
    transcripts = transcripts_in(Path(folder)) if folder is not None else ()
    return [*(file for name in names for file in files_of(name)), *map(str, transcripts)]


def _budgets(limits: dict[str, list[str] | None]) -> tuple[Budget, ...]:
    from ..probes.gate.budgets import read_budget_option

    return tuple(read_budget_option(name, text) for name, texts in limits.items() for text in texts or ())


def _allowances(allow: list[str] | None) -> dict[str, Any]:
    from ..probes.gate.allowances import read_allowances

    return {"allowances": read_allowances(allow or ())}


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
