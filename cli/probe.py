"""`tplaudit probe`: what a template does with system turns and reasoning, and what servers make of it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .output import check_output, say, stop, write_json, write_rich

if TYPE_CHECKING:
    from ..probes.models.template_info import Failure
    from ..probes.placements.placements import Case
    from ..probes.placements.report import ProbeReport
    from ..probes.placements.sweep import ProbeSettings


class FailOn(StrEnum):
    """The least severe finding that makes the exit code 1."""

    error = "error"
    warning = "warning"
    note = "note"
    never = "never"


Models = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL...",
        callback=options.named,
        help="A model directory, a .jinja file, a folder of them, a .gguf or tokenizer_config.json file, "
        "a hub id such as owner/name, or - for stdin.",
        show_default=False,
    ),
]
Threshold = Annotated[
    FailOn, typer.Option("--fail-on", help="The least severe finding that makes the exit code 1.")
]
IgnoreFile = Annotated[
    Path | None,
    typer.Option(
        "--ignore-file",
        metavar="FILE",
        callback=options.given,
        help="Accepted findings, a TOML file with a reason for each.",
    ),
]


def command(
    models: Models,
    show: Annotated[
        str | None,
        typer.Option(
            metavar="BEFORE/FOLLOWS[,…]",
            help="Print one placement's conversation and prompts for a bug report, such as tool/tail or "
            "user/before-user,no-leading,developer,tools.",
        ),
    ] = None,
    kwargs: options.Kwargs = None,
    special_token: options.SpecialTokens = None,
    now: options.Now = None,
    fail_on: Threshold = FailOn.error,
    ignore_file: IgnoreFile = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes for several inputs.")] = 1,
    as_json: options.Json = False,
    output: options.Output = None,
) -> None:
    """Say what a chat template does with system turns in mid-conversation and with reasoning.

    Everything is found out by rendering small conversations. Servers' own tests are run as well, to say which
    of them will leave system turns in place, move them to the front, write them as notes, or fail.
    """
    from ..probes.findings import reaches
    from ..probes.ignore_file import read_ignore_file
    from ..probes.placements.report import ProbeReport, several_to_json, to_json
    from ..probes.placements.sweep import ProbeSettings, folder_members, probe_input

    options.check_one_stdin(models)
    check_output(output, models)
    settings = ProbeSettings(
        options.read_kwargs(kwargs),
        options.read_special_tokens(special_token),
        options.read_now(now),
        read_ignore_file(ignore_file) if ignore_file else (),
    )
    folders = {name: folder_members(name) for name in models}
    names = [member for name in models for member in folders[name] or (name,)]
    if show is not None:
        _show(names, show, settings, as_json, output)
        return
    if len(models) == 1 and folders[models[0]] is None:
        report = probe_input(models[0], settings)
        _write_one(report, to_json(report), as_json, output)
        stop(int(reaches(report.findings, fail_on.value)))
        return
    results = _swept(names, settings, jobs)
    if as_json:
        write_json(several_to_json(results), output)
    else:
        from .formats.probe_text import draw_several

        write_rich(lambda console: draw_several(results, console), output)
    reports = [result for result in results if isinstance(result, ProbeReport)]
    if not reports:
        say("tplaudit: none of the inputs could be probed")
        stop(2)
    missing = options.say_missing(result for result in results if not isinstance(result, ProbeReport))
    stop(2 if missing else int(any(reaches(report.findings, fail_on.value) for report in reports)))


def _swept(names: list[str], settings: ProbeSettings, jobs: int) -> list[ProbeReport | Failure]:
    """Probe several inputs. A person who interrupts that is told so: nothing has been printed until then."""
    from ..probes.placements.sweep import sweep

    results: list[ProbeReport | Failure] = []
    try:
        results.extend(sweep(names, settings, jobs))
    except KeyboardInterrupt:
        say("tplaudit: interrupted; results of several inputs are printed when all of them are there")
        raise
    return results


def _write_one(report: Any, document: dict[str, Any], as_json: bool, output: Path | None) -> None:
    if as_json:
        write_json(document, output)
        return
    from .formats.probe_text import draw

    write_rich(lambda console: draw(report, console), output)


def _show(names: list[str], text: str, settings: ProbeSettings, as_json: bool, output: Path | None) -> None:
    """Print the conversation of one placement, both prompts and the verdict."""
    from ..probes.errors import UsageError
    from ..probes.models.template_files import load_template
    from ..probes.placements.report import show_placement
    from .formats.probe_text import draw_placement

    if len(names) != 1:
        raise UsageError("shows one placement of one template", where="--show", fix="give one MODEL")
    template = load_template(names[0], special_tokens=settings.special_tokens)
    shown = show_placement(template, read_case(text), kwargs=settings.kwargs, now=settings.now)
    if as_json:
        write_json(shown, output)
    else:
        write_rich(lambda console: draw_placement(shown, console), output)


def read_case(text: str) -> Case:
    """Read `BEFORE/FOLLOWS` and words behind it, such as `tool/tail,no-leading,developer`.

    Raises:
        UsageError: there is no such placement.
    """
    from ..probes.errors import UsageError
    from ..probes.placements.placements import FURTHER, PLAIN

    pair, *words = [word.strip() for word in text.split(",")]
    wanted = {
        "leading": "no-leading" not in words,
        "role": "developer" if "developer" in words else "system",
        "tools": "tools" in words or pair.startswith("tool/"),
    }
    shapes = {case.shape for case in FURTHER}
    shape = next(
        (word for word in words if word in shapes), "between-results" if "before-tool" in pair else "plain"
    )
    unknown = set(words) - {"leading", "no-leading", "developer", "system", "tools"} - shapes - {"plain"}
    for case in PLAIN + FURTHER:
        found = {"leading": case.leading, "role": case.role, "tools": case.tools}
        if case.pair == pair and case.shape == shape and found == wanted and not unknown:
            return case
    raise UsageError(
        f"there is no placement {text!r}",
        where="--show",
        fix="write user, tool or assistant, then /tail, /between or /before-user, then if you like "
        f"no-leading, developer, tools, {', '.join(sorted(shapes))}",
    )
