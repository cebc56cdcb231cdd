"""`tplaudit thinking`: what a template does with reasoning, and how a server merges chat-template kwargs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from . import options
from .audits import MODELS_HELP, IgnoreFile, audit_settings, stop_after, stop_after_several
from .options import SERVER, FailOn
from .output import check_output, write_json, write_rich

if TYPE_CHECKING:
    from ..probes.models.template_info import Failure
    from ..probes.placements.sweep import ProbeSettings
    from ..probes.templates.template import ChatTemplate
    from ..probes.thinking.audit import ThinkingAudit


@dataclass(frozen=True, slots=True)
class ThinkingOptions:
    """What `tplaudit thinking` is given."""

    models: Annotated[list[str] | None, options.argument("[MODEL]...", MODELS_HELP)] = None
    kwargs: options.Kwargs = None
    special_token: options.SpecialTokens = None
    now: options.Now = None
    settings: Annotated[
        Path | None,
        options.option(
            SERVER,
            "oMLX's settings of the model, or a whole model_settings.json: show the merge of kwargs.",
            "--settings",
            metavar="FILE",
        ),
    ] = None
    request: Annotated[
        Path | None,
        options.option(
            SERVER, "A request body whose kwargs are merged with them.", "--request", metavar="FILE"
        ),
    ] = None
    fail_on: options.Threshold = FailOn.error
    ignore_file: IgnoreFile = None
    as_json: options.Json = False
    output: options.Output = None


@options.taken_from(ThinkingOptions)
def command(given: ThinkingOptions) -> None:
    """Show whether a template keeps reasoning in history, which variable decides, and what servers do.

    Everything is found out by rendering small conversations whose reasoning carries a marker. With --settings
    or --request the merge of chat-template kwargs is shown step by step, and with a MODEL the prompt as well.
    """
    from ..probes.templates.renderer import renderer

    renderer.start()  # the worker gets ready while this process imports the rest
    from ..probes.errors import UsageError
    from ..probes.placements.sweep import folder_members

    names = given.models or []
    options.check_one_stdin(names)
    check_output(given.output, names)
    settings = audit_settings(given.kwargs, given.special_token, given.now, given.ignore_file)
    if given.settings is not None or given.request is not None:
        if len(names) > 1:
            raise UsageError("a merge is shown for one model", where="MODEL", fix="name one MODEL, or none")
        _write_one(given, _merged(names[0] if names else None, given, settings))
    elif not names:
        raise UsageError("there is nothing to examine", where="MODEL", fix="name a MODEL, or give --settings")
    elif len(names) == 1 and folder_members(names[0]) is None:
        _write_one(given, _examined(names[0], settings))
    else:
        members = [member for name in names for member in folder_members(name) or (name,)]
        _write_several(given, [_result(member, settings) for member in members])


def _load(name: str, settings: ProbeSettings) -> ChatTemplate:
    from ..probes.models.template_files import load_template

    return load_template(name, special_tokens=settings.special_tokens)


def _examined(name: str, settings: ProbeSettings) -> ThinkingAudit:
    from ..probes.thinking.audit import audit_thinking

    return audit_thinking(
        _load(name, settings), kwargs=settings.kwargs, now=settings.now, ignores=settings.ignores
    )


def _result(name: str, settings: ProbeSettings) -> ThinkingAudit | Failure:
    from ..probes.errors import InputError
    from ..probes.thinking.audit import failure

    try:
        return _examined(name, settings)
    except InputError as error:
        return failure(name, str(error))


def _merged(name: str | None, given: ThinkingOptions, settings: ProbeSettings) -> ThinkingAudit:
    from ..probes.models.template_files import check_compiles
    from ..probes.policies.servers.omlx_kwargs import ModelSettings
    from ..probes.thinking.audit import audit_thinking, merge_report
    from ..probes.thinking.kwargs_files import KwargsRequest, read_request, read_settings

    template = None if name is None else _load(name, settings)
    if template is not None:
        check_compiles(template)
    of_model = None if name is None else Path(name).name
    merge = merge_report(
        read_settings(given.settings, of_model) if given.settings else ModelSettings(),
        read_request(given.request) if given.request else KwargsRequest(),
        template,
        kwargs=settings.kwargs,
        now=settings.now,
        settings_source=None if given.settings is None else str(given.settings),
        request_source=None if given.request is None else str(given.request),
    )
    return audit_thinking(
        template, kwargs=settings.kwargs, now=settings.now, ignores=settings.ignores, merge=merge
    )


def _write_one(given: ThinkingOptions, audit: ThinkingAudit) -> None:
    from ..probes.thinking.audit import to_json

    if given.as_json:
        write_json(to_json(audit), given.output)
    else:
        from .formats.thinking_text import draw

        write_rich(lambda console: draw(audit, console), given.output)
    stop_after(audit.findings, given.fail_on)


def _write_several(given: ThinkingOptions, results: list[ThinkingAudit | Failure]) -> None:
    from ..probes.thinking.audit import several_to_json

    if given.as_json:
        write_json(several_to_json(results), given.output)
    else:
        from .formats.thinking_text import draw_several

        write_rich(lambda console: draw_several(results, console), given.output)
    stop_after_several(results, given.fail_on, "examined")
