"""`tplaudit probe`: what a template does with system turns and reasoning, and what servers make of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from . import options
from .audits import MODELS_HELP, IgnoreFile, audit_settings, stop_after, stop_after_several
from .options import INPUT, OUTPUT, FailOn
from .output import check_output, say, write_json, write_rich

if TYPE_CHECKING:
    from ..probes.models.template_info import Failure
    from ..probes.placements.placements import Case
    from ..probes.placements.report import ProbeReport
    from ..probes.placements.sweep import ProbeSettings


@dataclass(frozen=True, slots=True)
class ProbeCommandOptions:
    """What `tplaudit probe` is given."""

    models: Annotated[list[str], options.argument("MODEL...", MODELS_HELP)]
    kwargs: options.Kwargs = None
    special_token: options.SpecialTokens = None
    now: options.Now = None
    jobs: Annotated[int, options.option(INPUT, "Processes for several inputs.", min=1)] = 1
    show: Annotated[
        str | None,
        options.option(
            OUTPUT,
            "Print one placement's conversation and prompts for a bug report, such as tool/tail or "
            "user/before-user,no-leading,developer,tools.",
            metavar="BEFORE/FOLLOWS[,…]",
        ),
    ] = None
    fail_on: options.Threshold = FailOn.error
    ignore_file: IgnoreFile = None
    as_json: options.Json = False
    output: options.Output = None


@options.taken_from(ProbeCommandOptions)
def command(given: ProbeCommandOptions) -> None:
    """Show what a chat template does with later system messages and with reasoning.

    Everything is found out by rendering small conversations. The tests by which servers examine a template
    are run as well. They tell whether a server leaves system messages in place, moves them to the front,
    writes them as notes, or fails.
    """
    from ..probes.templates.renderer import renderer

    renderer.start()  # the worker gets ready while this process imports the rest
    from ..probes.placements.sweep import folder_members

    options.check_one_stdin(given.models)
    check_output(given.output, given.models)
    settings = audit_settings(given.kwargs, given.special_token, given.now, given.ignore_file)
    folders = {name: folder_members(name) for name in given.models}
    names = [member for name in given.models for member in folders[name] or (name,)]
    if given.show is not None:
        _show(names, given.show, settings, given.as_json, given.output)
    elif len(given.models) == 1 and folders[given.models[0]] is None:
        _probe_one(given, settings)
    else:
        _probe_several(given, names, settings)


def _probe_one(given: ProbeCommandOptions, settings: ProbeSettings) -> None:
    from ..probes.placements.report import to_json
    from ..probes.placements.sweep import probe_input

    report = probe_input(given.models[0], settings)
    if given.as_json:
        write_json(to_json(report), given.output)
    else:
        from .formats.probe_text import draw

        write_rich(lambda console: draw(report, console), given.output)
    stop_after(report.findings, given.fail_on)


def _probe_several(given: ProbeCommandOptions, names: list[str], settings: ProbeSettings) -> None:
    from ..probes.placements.report import several_to_json

    results = _swept(names, settings, given.jobs)
    if given.as_json:
        write_json(several_to_json(results), given.output)
    else:
        from .formats.probe_text import draw_several

        write_rich(lambda console: draw_several(results, console), given.output)
    stop_after_several(results, given.fail_on, "probed")


def _swept(names: list[str], settings: ProbeSettings, jobs: int) -> list[ProbeReport | Failure]:
    """Probe several inputs. On Ctrl-C say that nothing has been printed until then."""
    from ..probes.placements.sweep import sweep

    results: list[ProbeReport | Failure] = []
    try:
        results.extend(sweep(names, settings, jobs))
    except KeyboardInterrupt:
        say("tplaudit: interrupted; results of several inputs are printed when all of them are there")
        raise
    return results


def _show(names: list[str], text: str, settings: ProbeSettings, as_json: bool, output: Path | None) -> None:
    from ..probes.errors import UsageError
    from ..probes.models.template_files import load_template
    from ..probes.placements.report import show_placement

    if len(names) != 1:
        raise UsageError("shows one placement of one template", where="--show", fix="give one MODEL")
    template = load_template(names[0], special_tokens=settings.special_tokens)
    shown = show_placement(template, read_case(text), kwargs=settings.kwargs, now=settings.now)
    if as_json:
        write_json(shown, output)
    else:
        from .formats.probe_text import draw_placement

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
