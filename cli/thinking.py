"""`tplaudit thinking`: what a template does with reasoning, and how a server merges chat-template kwargs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .output import check_output, say, stop, write_json, write_rich
from .probe import FailOn, IgnoreFile, Threshold

if TYPE_CHECKING:
    from ..probes.models.template_info import Failure
    from ..probes.placements.sweep import ProbeSettings
    from ..probes.templates.template import ChatTemplate
    from ..probes.thinking.audit import MergeReport, ThinkingAudit


def command(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL]...",
            callback=options.named,
            help="A model directory, a .jinja file, a folder of them, a .gguf or tokenizer_config.json file, "
            "a hub id such as owner/name, or - for stdin.",
            show_default=False,
        ),
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(
            "--settings",
            metavar="FILE",
            help="oMLX's settings of the model, or a whole model_settings.json: show the merge of kwargs.",
        ),
    ] = None,
    request: Annotated[
        Path | None,
        typer.Option("--request", metavar="FILE", help="A request body whose kwargs are merged with them."),
    ] = None,
    kwargs: options.Kwargs = None,
    special_token: options.SpecialTokens = None,
    now: options.Now = None,
    fail_on: Threshold = FailOn.error,
    ignore_file: IgnoreFile = None,
    as_json: options.Json = False,
    output: options.Output = None,
) -> None:
    """Say whether a template keeps reasoning in history, which variable decides, and what servers make of it.

    Everything is found out by rendering small conversations whose reasoning carries a marker. With --settings
    or --request the merge of chat-template kwargs is shown step by step, and with a MODEL the prompt as well.
    """
    from ..probes.errors import UsageError
    from ..probes.findings import reaches
    from ..probes.ignore_file import read_ignore_file
    from ..probes.placements.sweep import ProbeSettings, folder_members
    from ..probes.thinking.audit import ThinkingAudit, several_to_json

    given = ProbeSettings(
        options.read_kwargs(kwargs),
        options.read_special_tokens(special_token),
        options.read_now(now),
        read_ignore_file(ignore_file) if ignore_file else (),
    )
    names = models or []
    options.check_one_stdin(names)
    check_output(output, names)
    if settings is not None or request is not None:
        if len(names) > 1:
            raise UsageError("a merge is shown for one model", where="MODEL", fix="name one MODEL, or none")
        audit = _merged(names[0] if names else None, settings, request, given)
        _write_one(audit, as_json, output)
        stop(int(reaches(audit.findings, fail_on.value)))
        return
    if not names:
        raise UsageError("there is nothing to examine", where="MODEL", fix="name a MODEL, or give --settings")
    if len(names) == 1 and folder_members(names[0]) is None:
        audit = _examined(names[0], given)
        _write_one(audit, as_json, output)
        stop(int(reaches(audit.findings, fail_on.value)))
        return
    results = [_result(member, given) for name in names for member in folder_members(name) or (name,)]
    if as_json:
        write_json(several_to_json(results), output)
    else:
        from .formats.thinking_text import draw_several

        write_rich(lambda console: draw_several(results, console), output)
    audits = [result for result in results if isinstance(result, ThinkingAudit)]
    if not audits:
        say("tplaudit: none of the inputs could be examined")
        stop(2)
    missing = options.say_missing(result for result in results if not isinstance(result, ThinkingAudit))
    stop(2 if missing else int(any(reaches(audit.findings, fail_on.value) for audit in audits)))


def _load(name: str, given: ProbeSettings) -> ChatTemplate:
    from ..probes.models.template_files import load_template

    return load_template(name, special_tokens=given.special_tokens)


def _examined(name: str, given: ProbeSettings, merge: MergeReport | None = None) -> ThinkingAudit:
    from ..probes.thinking.audit import audit_thinking

    return audit_thinking(
        _load(name, given), kwargs=given.kwargs, now=given.now, ignores=given.ignores, merge=merge
    )


def _result(name: str, given: ProbeSettings) -> ThinkingAudit | Failure:
    from ..probes.errors import InputError
    from ..probes.thinking.audit import failure

    try:
        return _examined(name, given)
    except InputError as error:
        return failure(name, str(error))


def _merged(
    name: str | None, settings: Path | None, request: Path | None, given: ProbeSettings
) -> ThinkingAudit:
    from ..probes.models.template_files import check_compiles
    from ..probes.policies.servers.omlx_kwargs import ModelSettings
    from ..probes.thinking.audit import audit_thinking, merge_report
    from ..probes.thinking.kwargs_files import KwargsRequest, read_request, read_settings

    template = None if name is None else _load(name, given)
    if template is not None:
        check_compiles(template)
    merge = merge_report(
        read_settings(settings, None if name is None else Path(name).name) if settings else ModelSettings(),
        read_request(request) if request else KwargsRequest(),
        template,
        kwargs=given.kwargs,
        now=given.now,
        settings_source=None if settings is None else str(settings),
        request_source=None if request is None else str(request),
    )
    return audit_thinking(template, kwargs=given.kwargs, now=given.now, ignores=given.ignores, merge=merge)


def _write_one(audit: ThinkingAudit, as_json: bool, output: Path | None) -> None:
    from ..probes.thinking.audit import to_json

    if as_json:
        write_json(to_json(audit), output)
        return
    from .formats.thinking_text import draw

    write_rich(lambda console: draw(audit, console), output)
