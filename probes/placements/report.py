"""The probe's report: one value that every output prints from, and whose JSON form is `tplaudit.probe/1`.

The field names are the JSON names; docs/json.md explains them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ... import __version__
from ..documents import plain, several
from ..errors import RenderError
from ..findings import Finding, Ignore, Ignored, apply_ignores, in_order
from ..models.template_files import check_compiles
from ..models.template_info import Failure, TemplateInfo
from ..templates.template import ChatTemplate
from ..thinking.findings import thinking_findings
from ..thinking.report import ThinkingReport
from ..thinking.thinking import examine_thinking
from ..tokenization.loading_check import check_loading
from .findings import placement_findings, server_findings
from .mid_system import PlacementReport, Prompts, examine, examine_placements
from .placements import Case
from .server_detection import ServerReport, examine_servers
from .template_checks import check_template

SCHEMA = "tplaudit.probe/1"


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What one template does.

    Attributes:
        schema: name and version of this form.
        tplaudit: version of the program.
        template: what was probed.
        kwargs: chat-template kwargs of all renders.
        placements: what becomes of system turns that are not first.
        servers: what servers conclude from their own tests.
        thinking: what becomes of reasoning in history.
        findings: what is wrong, the worst first.
        ignored: findings that an ignore file accepts.
    """

    schema: str
    tplaudit: str
    template: TemplateInfo
    kwargs: Mapping[str, Any]
    placements: tuple[PlacementReport, ...]
    servers: tuple[ServerReport, ...]
    thinking: ThinkingReport
    findings: tuple[Finding, ...]
    ignored: tuple[Ignored, ...] = ()


def probe(
    template: ChatTemplate,
    *,
    kwargs: Mapping[str, Any] | None = None,
    now: datetime | None = None,
    ignores: Sequence[Ignore] = (),
) -> ProbeReport:
    """Say what a template does with system turns and reasoning, and what servers make of it.

    Raises:
        InputError: the template is not valid Jinja.
    """
    check_compiles(template)
    given = dict(kwargs or {})
    placements = examine_placements(template, kwargs=given, now=now)
    servers = examine_servers(template, placements, kwargs=given, now=now)
    thinking = examine_thinking(template, kwargs=given)
    found = in_order(
        [
            *placement_findings(placements),
            *server_findings(servers, placements),
            *thinking_findings(thinking),
            *check_template(Prompts(template, given, now)),
            *check_loading(template.source),
        ]
    )
    findings, ignored = apply_ignores(found, ignores, template.source)
    info = TemplateInfo(template.source, template.choose(None).sha256)
    return ProbeReport(SCHEMA, __version__, info, given, placements, servers, thinking, findings, ignored)


def failure(source: str, error: str) -> Failure:
    """Return the result of an input that could not be probed."""
    return Failure(SCHEMA, __version__, TemplateInfo(source, None), error)


def to_json(report: ProbeReport | Failure) -> dict[str, Any]:
    """Return the report as plain JSON types."""
    return plain(report)


def several_to_json(reports: Sequence[ProbeReport | Failure]) -> dict[str, Any]:
    """Return the results of several inputs as one document; each also says its source at the top."""
    results = [{"source": report.template.source, **to_json(report)} for report in reports]
    return several(SCHEMA, results)


def show_placement(
    template: ChatTemplate,
    case: Case,
    *,
    kwargs: Mapping[str, Any] | None = None,
    now: datetime | None = None,
) -> dict[str, Any]:
    """Return one placement with its conversation and prompts, as plain JSON types (`tplaudit.placement/1`).

    Raises:
        InputError: the template is not valid Jinja.
    """
    check_compiles(template)
    prompts = Prompts(template, dict(kwargs or {}), now)
    report = examine(prompts, case)
    request = prompts.request(case.conversation, case.tools)
    before = prompts.prompt(case.history, case.tools)
    with_run = prompts.prompt(case.conversation, case.tools, prompted=case.prompted)
    return {
        "schema": "tplaudit.placement/1",
        "tplaudit": __version__,
        "template": {"source": template.source, "sha256": template.choose(None).sha256},
        "kwargs": dict(prompts.kwargs),
        **{name: value for name, value in plain(report).items() if name != "kwargs"},
        "messages": [dict(message.data) for message in request.messages],
        "run": [len(case.history) + index for index in range(len(case.run))],
        "request_tools": None if request.tools is None else list(request.tools),
        "add_generation_prompt": case.prompted,
        "prompt_before": None if isinstance(before, RenderError) else before,
        "prompt_with": None if isinstance(with_run, RenderError) else with_run,
    }
