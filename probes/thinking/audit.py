"""The document of `tplaudit thinking`: the report on reasoning, its findings, and a merge of kwargs.

Its JSON form is `tplaudit.thinking/1`; docs/thinking.md and docs/kwargs.md explain it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ... import __version__
from ..conversation import Request
from ..documents import plain, several
from ..findings import Finding, Ignore, Ignored, apply_ignores, in_order
from ..models.template_files import check_compiles, model_name, model_type
from ..models.template_info import Failure, TemplateInfo
from ..policies.servers.omlx_kwargs import MergedPrompt, MergeStep, ModelSettings, merge_kwargs, merged_prompt
from ..policies.servers.omlx_reasoning import detect_preserve_thinking, native_reasoning, output_cacheable
from ..templates.template import ChatTemplate
from .kwargs_files import KwargsRequest
from .thinking import ThinkingReport, examine_thinking, thinking_findings

SCHEMA = "tplaudit.thinking/1"


@dataclass(frozen=True, slots=True)
class MergeReport:
    """How a server merges the chat-template kwargs of its settings and a request.

    Attributes:
        settings: the file of settings, None where none was given.
        request: the file of the request, None where none was given.
        detected_default: what was detected for the template; None also where there is no template.
        steps: what each layer did with each key.
        kwargs: what the template gets.
        dropped: keys of the request that the settings force.
        output_cacheable: whether the output of a reply that thinks is cached then; None without a template.
        prompt: what the template makes of it; None without a template or without messages.
        notes: what a reader has to know about what was not read.
    """

    settings: str | None
    request: str | None
    detected_default: bool | None
    steps: tuple[MergeStep, ...]
    kwargs: Mapping[str, Any]
    dropped: tuple[str, ...]
    output_cacheable: bool | None
    prompt: MergedPrompt | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ThinkingAudit:
    """What is said about one template, or about a merge without one.

    Attributes:
        schema: name and version of this form.
        tplaudit: version of the program.
        template: what was examined; None for a merge without a template.
        kwargs: chat-template kwargs of the renders.
        thinking: the report; its fields stand at the top of the JSON form.
        findings: what is wrong, the worst first.
        ignored: findings that an ignore file accepts.
        merge: the merge of kwargs, where it was asked for.
    """

    schema: str
    tplaudit: str
    template: TemplateInfo | None
    kwargs: Mapping[str, Any]
    thinking: ThinkingReport | None
    findings: tuple[Finding, ...] = ()
    ignored: tuple[Ignored, ...] = ()
    merge: MergeReport | None = None


def audit_thinking(
    template: ChatTemplate | None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    now: datetime | None = None,
    ignores: Sequence[Ignore] = (),
    merge: MergeReport | None = None,
) -> ThinkingAudit:
    """Examine a template's reasoning.

    Args:
        template: the template; None where there is only a merge.
        kwargs: chat-template kwargs of all renders.
        now: the clock that the template shall see.
        ignores: entries of an ignore file.
        merge: the merge that was asked for.

    Raises:
        InputError: the template is not valid Jinja.
    """
    given = dict(kwargs or {})
    if template is None:
        return ThinkingAudit(SCHEMA, __version__, None, given, None, merge=merge)
    check_compiles(template)
    report = examine_thinking(template, kwargs=given, now=now)
    findings, ignored = apply_ignores(in_order(thinking_findings(report)), ignores, template.source)
    info = TemplateInfo(template.source, template.choose(None).sha256)
    return ThinkingAudit(SCHEMA, __version__, info, given, report, findings, ignored, merge)


def merge_report(
    settings: ModelSettings,
    request: KwargsRequest,
    template: ChatTemplate | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    now: datetime | None = None,
    settings_source: str | None = None,
    request_source: str | None = None,
) -> MergeReport:
    """Merge kwargs as the server does, and render what comes of it."""
    detected = None if template is None else detect_preserve_thinking(template)
    merge = merge_kwargs(
        settings,
        {**request.kwargs, **(kwargs or {})},
        reasoning_effort=request.reasoning_effort,
        thinking_budget=request.thinking_budget,
        preserve_thinking_default=detected,
    )
    cacheable, prompt = None, None
    if template is not None:
        native = native_reasoning(detected, model_type(template), model_name(template))
        merged = merge.kwargs.get("preserve_thinking")
        cacheable = output_cacheable(settings.cache_reasoning_output, native, merged)
        if request.request is not None:
            prompt = merged_prompt(template, _timed(request.request, now), merge)
    return MergeReport(
        settings_source,
        request_source,
        detected,
        merge.steps,
        merge.kwargs,
        merge.dropped,
        cacheable,
        prompt,
        request.notes,
    )


def _timed(request: Request, now: datetime | None) -> Request:
    return request if request.now is not None else request.replace(now=now)


def failure(source: str, error: str) -> Failure:
    """Return the result of an input that could not be examined."""
    return Failure(SCHEMA, __version__, TemplateInfo(source, None), error)


def to_json(audit: ThinkingAudit | Failure) -> dict[str, Any]:
    """Return the document as plain JSON types, the report's fields at its top."""
    value = plain(audit)
    report = value.pop("thinking", None)
    return value if report is None else {**value, **report}


def several_to_json(audits: Sequence[ThinkingAudit | Failure]) -> dict[str, Any]:
    """Return the results of several inputs as one document; each also says its source at the top."""
    results = [
        {"source": None if audit.template is None else audit.template.source, **to_json(audit)}
        for audit in audits
    ]
    return several(SCHEMA, results)
