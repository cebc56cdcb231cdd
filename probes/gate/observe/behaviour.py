"""What one template does, as far as the gate compares it: system turns, reasoning, prompts, names.

A behaviour belongs to one template alone. Two of them are compared by `compare.py`, whether both were
observed just now or one was read from a signature file (`lock.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ...conversation import Message, Request
from ...models.template_files import check_compiles
from ...placements.mid_system import PlacementReport, Prompts, examine_placements
from ...placements.server_detection import examine_servers
from ...placements.template_checks import check_template
from ...templates.switches import switches
from ...templates.template import ChatTemplate
from ...thinking.report import ThinkingReport
from ...thinking.thinking import examine_thinking
from ..rules import FOLLOWED
from .prompts import PromptOutline, Turns, jinja_writer
from .shapes import SHAPES, words

if TYPE_CHECKING:
    from .engine import SecondEngine

#: The clock of templates that print one, so that a date is no difference.
CLOCK = datetime(2026, 1, 1)
#: A switch of a template and a value for it.
Variant = tuple[str, bool | str]
RAW = "raw"
LLAMACPP = "llama.cpp"


@dataclass(frozen=True, slots=True)
class View:
    """What one template text does.

    Attributes:
        placements: what becomes of system turns that are not first.
        thinking: verdicts on reasoning in history, by what they are about; `FORM@NAME=VALUE` with a switch.
        prompts: the prompts of each conversation, one for each request; `CONVERSATION@WHAT` for that of the
            last request with a switch, with messages passed on as given (`raw`), or by llama.cpp's engine.
        engines: per conversation, whether llama.cpp's engine writes the same prompt.
        findings: other findings of the probe, by rule and what they are about, with their lines.
    """

    placements: tuple[PlacementReport, ...]
    thinking: Mapping[str, str]
    prompts: Mapping[str, tuple[PromptOutline, ...]]
    engines: Mapping[str, bool] = field(default_factory=dict)
    findings: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What a model's templates do.

    Attributes:
        source: what the person named.
        digests: hash of each named template's text.
        views: by name: `""` as requests choose a template, and each named template where there are several.
        variants: the switches with which conversations were rendered as well.
        template: the templates themselves, where they are at hand.
    """

    source: str
    digests: Mapping[str, str]
    views: Mapping[str, View]
    variants: tuple[Variant, ...] = ()
    template: ChatTemplate | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Observing:
    """How templates are observed.

    Attributes:
        kwargs: chat-template kwargs of all renders.
        now: the clock that templates see.
        engine: llama.cpp's engine, where it is compared.
    """

    kwargs: Mapping[str, Any] = field(default_factory=dict)
    now: datetime = CLOCK
    engine: SecondEngine | None = None


def variants_of(template: ChatTemplate, kwargs: Mapping[str, Any]) -> tuple[Variant, ...]:
    """Return the switches of a model's templates, with the values to try.

    Raises:
        InputError: a template is not valid Jinja.
    """
    check_compiles(template)
    found: dict[Variant, None] = {}
    for source in template.sources.values():
        for name, values in switches(source).items():
            if name not in kwargs:
                found.update(dict.fromkeys((name, value) for value in values))
    return tuple(found)


def observe(template: ChatTemplate, variants: Sequence[Variant], observing: Observing) -> Behaviour:
    """Find out what a model's templates do.

    Args:
        template: the templates.
        variants: switches with which the telling conversations are rendered as well.
        observing: kwargs, clock and engine.

    Raises:
        InputError: a template is not valid Jinja, or the model has no default template.
    """
    check_compiles(template)
    views = {"": _view(template, variants, observing)}
    if len(template.sources) > 1:
        for name in sorted(template.sources):
            views[name] = _view(alone(template, name), variants, observing)
    digests = {name: source.sha256 for name, source in sorted(template.sources.items())}
    return Behaviour(template.source, digests, views, tuple(variants), template)


def alone(template: ChatTemplate, name: str) -> ChatTemplate:
    """Return one of a model's named templates as a template of its own."""
    return ChatTemplate(
        {"default": template.sources[name].text},
        source=template.source,
        special_tokens=template.special_tokens,
        now=template.now,
        limits=template.limits,
    )


def _view(template: ChatTemplate, variants: Sequence[Variant], observing: Observing) -> View:
    kwargs, now = observing.kwargs, observing.now
    placements = examine_placements(template, kwargs=kwargs, now=now)
    servers = examine_servers(template, placements, kwargs=kwargs, now=now)
    findings: dict[str, int | None] = {
        f"probe-false-positive {server.name}": None for server in servers if server.false_positives
    }
    for finding in check_template(Prompts(template, kwargs, now)):
        if finding.rule in FOLLOWED:
            findings[finding.rule] = finding.line
    prompts = dict(_prompts(template, variants, observing))
    engines: dict[str, bool] = {}
    if observing.engine is not None:
        for shape in SHAPES:
            if not shape.engines:
                continue
            request = _with(shape.requests[-1], kwargs, now)
            prompt, same = observing.engine.render(request, template)
            prompts[f"{shape.name}@{LLAMACPP}"] = (prompt,)
            if same is not None:
                engines[shape.name] = same
    report = examine_thinking(template, kwargs=kwargs, now=now)
    return View(placements, dict(_thinking(report)), prompts, engines, findings)


def _prompts(
    template: ChatTemplate, variants: Sequence[Variant], observing: Observing
) -> Iterator[tuple[str, tuple[PromptOutline, ...]]]:
    """Yield the prompts: of every request as usual, else of each conversation's last request alone."""
    kwargs, now = observing.kwargs, observing.now
    for shape in SHAPES:
        turns = Turns(jinja_writer(template), _words)
        yield shape.name, tuple(turns.prompt(_with(request, kwargs, now)) for request in shape.requests)
        raw = Turns(jinja_writer(template, "raw"), _words, bodies=False)
        yield f"{shape.name}@{RAW}", (raw.prompt(_with(shape.requests[-1], kwargs, now)),)
    for name, value in variants:
        for shape in SHAPES:
            if shape.telling:
                request = _with(shape.requests[-1], {**kwargs, name: value}, now)
                prompt = Turns(jinja_writer(template), _words).prompt(request)
                yield f"{shape.name}@{setting(name, value)}", (prompt,)


def _with(request: Request, kwargs: Mapping[str, Any], now: datetime) -> Request:
    return request.replace(kwargs={**request.kwargs, **kwargs}, now=now)


def _words(message: Message) -> Sequence[str]:
    return words(message.data)


def _thinking(report: ThinkingReport) -> Iterator[tuple[str, str]]:
    """Yield the verdicts of a report on reasoning, by what they are about."""
    yield "reasoning_content", report.history
    yield from report.fields.items()
    for form, verdict in report.raw.items():
        yield f"{form}@{RAW}", verdict
    yield f"reasoning_content@{LLAMACPP}", report.llama_cpp.history
    yield "reasoning_content@omlx", report.omlx.history
    if report.as_given is not None:
        yield "reasoning_content@given", report.as_given
    for variable in report.variables:
        values: list[tuple[bool | str, str]] = [(True, variable.true), (False, variable.false)]
        values += variable.texts.items()
        for value, found in values:
            yield f"{variable.form}@{setting(variable.name, value)}", found
    prompt = report.generation_prompt
    for label, suffix in (("", prompt), ("@on", prompt.on), ("@off", prompt.off)):
        if suffix is not None:
            yield f"generation-prompt{label}", _persists(suffix.persists)


def _persists(value: bool | None) -> str:
    return {True: "stays", False: "does not stay", None: "not-evaluated"}[value]


def setting(name: str, value: bool | str) -> str:
    """Write a switch as `NAME=VALUE`."""
    return f"{name}={value if isinstance(value, str) else json.dumps(value)}"
