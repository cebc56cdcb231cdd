"""What one template does, as far as the gate compares it: system turns, reasoning, prompts, names.

A behaviour belongs to one template alone. Two of them are compared by `compare.py`, whether both were
observed just now or one was read from a signature file (`lock.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ...models.template_files import check_compiles
from ...placements.mid_system import PlacementReport, Prompts, examine_placements
from ...placements.server_detection import examine_servers
from ...placements.template_checks import check_template
from ...templates.switches import switches
from ...templates.template import ChatTemplate
from ...text import settings_text
from ...thinking.report import ThinkingReport
from ...thinking.thinking import examine_thinking
from ..rules import FOLLOWED
from ..subject import Subject
from .prompts import PromptOutline
from .shapes import SHAPES
from .view_prompts import RAW, Switched, given, view_prompts

if TYPE_CHECKING:
    from .engine import SecondEngine

#: The clock of templates that print one, so that a date is no difference.
CLOCK = datetime(2026, 1, 1)
#: The variant that llama.cpp's engine renders.
LLAMACPP = "llama.cpp"
_PERSISTS = {True: "stays", False: "does not stay", None: "not-evaluated"}


@dataclass(frozen=True, slots=True)
class FollowedFinding:
    """A finding of the probe that the gate follows: its rule, and the server that it is about, if any."""

    rule: str
    server: str = ""

    @property
    def subject(self) -> Subject:
        """What reports call it."""
        return Subject("findings", self.server or self.rule)

    def __str__(self) -> str:
        return f"{self.rule} {self.server}".strip()


@dataclass(frozen=True, slots=True)
class View:
    """What one template text does.

    Attributes:
        placements: what becomes of system turns that are not first, at each placement.
        thinking: verdicts on reasoning in history, by the form in which it is given.
        prompts: the prompts of each conversation, one for each request; in a variant, that of the last
            request alone.
        engines: per conversation, whether llama.cpp's engine writes the same prompt.
        findings: other findings of the probe, with their lines.
    """

    placements: Mapping[Subject, PlacementReport]
    thinking: Mapping[Subject, str]
    prompts: Mapping[Subject, tuple[PromptOutline, ...]]
    engines: Mapping[Subject, bool] = field(default_factory=dict)
    findings: Mapping[FollowedFinding, int | None] = field(default_factory=dict)


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
    variants: tuple[Switched, ...] = ()
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


def variants_of(template: ChatTemplate, kwargs: Mapping[str, Any]) -> tuple[Switched, ...]:
    """Return the switches of a model's templates, with the values to try.

    Raises:
        InputError: a template is not valid Jinja.
    """
    check_compiles(template)
    found: dict[Switched, None] = {}
    for source in template.sources.values():
        for name, values in switches(source).items():
            if name not in kwargs:
                found.update(dict.fromkeys((name, value) for value in values))
    return tuple(found)


def observe(template: ChatTemplate, variants: Sequence[Switched], observing: Observing) -> Behaviour:
    """Find out what a model's templates do.

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


def _view(template: ChatTemplate, variants: Sequence[Switched], observing: Observing) -> View:
    kwargs, now = observing.kwargs, observing.now
    placements = examine_placements(template, kwargs=kwargs, now=now)
    servers = examine_servers(template, placements, kwargs=kwargs, now=now)
    findings: dict[FollowedFinding, int | None] = {
        FollowedFinding("probe-false-positive", server.name): None
        for server in servers
        if server.false_positives
    }
    for finding in check_template(Prompts(template, kwargs, now)):
        if finding.rule in FOLLOWED:
            findings[FollowedFinding(finding.rule)] = finding.line
    prompts = view_prompts(template, variants, kwargs, now)
    engines: dict[Subject, bool] = {}
    if observing.engine is not None:
        for shape in SHAPES:
            if not shape.engines:
                continue
            request = given(shape.requests[-1], kwargs, now)
            prompt, same = observing.engine.render(request, template)
            prompts[shape.subject(LLAMACPP)] = (prompt,)
            if same is not None:
                engines[shape.subject(LLAMACPP)] = same
    report = examine_thinking(template, kwargs=kwargs, now=now)
    thinking = {Subject("thinking", form, variant): found for form, variant, found in _verdicts(report)}
    return View(by_placement(placements), thinking, prompts, engines, findings)


def by_placement(rows: Iterable[PlacementReport]) -> dict[Subject, PlacementReport]:
    """Return the rows of a placement matrix by what reports call them."""
    return {placement(row): row for row in rows}


def placement(row: PlacementReport) -> Subject:
    """Return a placement as `tplaudit probe --show` names it; as a variant, its switch or profile."""
    words = [
        row.placement,
        *([] if row.leading else ["no-leading"]),
        *(["developer"] if row.role == "developer" else []),
        *(["tools"] if row.tools and row.preceding != "tool" else []),
        *([] if row.shape == "plain" else [row.shape]),
    ]
    switched = settings_text(row.kwargs, ",")
    return Subject(row.preceding, ",".join(words), RAW if row.profile == "raw" else switched)


def _verdicts(report: ThinkingReport) -> Iterator[tuple[str, str, str]]:
    """Yield the form in which reasoning is given, the variant and the verdict."""
    yield "reasoning_content", "", report.history
    for form, verdict in report.fields.items():
        yield form, "", verdict
    for form, verdict in report.raw.items():
        yield form, RAW, verdict
    yield "reasoning_content", LLAMACPP, report.llama_cpp.history
    yield "reasoning_content", "omlx", report.omlx.history
    if report.as_given is not None:
        yield "reasoning_content", "given", report.as_given
    for variable in report.variables:
        values: list[tuple[bool | str, str]] = [(True, variable.true), (False, variable.false)]
        values += variable.texts.items()
        for value, found in values:
            yield variable.form, settings_text({variable.name: value}), found
    prompt = report.generation_prompt
    for variant, suffix in (("", prompt), ("on", prompt.on), ("off", prompt.off)):
        if suffix is not None:
            yield "generation-prompt", variant, _PERSISTS[suffix.persists]
