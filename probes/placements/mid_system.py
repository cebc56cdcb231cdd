"""The capability probe: what a template does with system turns that are not first, at every placement.

How a verdict is reached: docs/probe.md. Everything is rendered, nothing is guessed from the
source; prompts that several placements share are rendered once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ..conversation import Message, Request
from ..errors import RenderError, RenderLimit
from ..templates.rendering import Chunk, Profile, PromptText, RenderTask
from ..templates.source import TemplateSource
from ..templates.switches import switches
from ..templates.template import ChatTemplate
from .placements import (
    FURTHER,
    MESSAGES,
    PLAIN,
    REPRESENTATIVE,
    TEXTS,
    TOOLS,
    Case,
    Conversation,
    Follows,
    MovedTo,
    Preceding,
    Shape,
    SystemRole,
)
from .verdicts import Verdict, judge, occurrences


@dataclass(frozen=True, slots=True)
class PlacementReport:
    """What a template does with a run of system turns at one place. The names are the JSON names.

    Attributes:
        preceding: role of the message before the run.
        placement: what follows the run.
        leading: whether the conversation begins with a system message.
        role: role of the run's messages.
        tools: whether the request has tools.
        shape: `plain`, or what else is special about the conversation.
        kwargs: chat-template kwargs beyond those of the whole report.
        verdict: what became of the run.
        successor_moves: whether the message after the run alone, without it, changes the earlier prompt;
            asked only where the verdict is not `in-place`, None where nothing follows.
        error: what the template raised, or why there is no verdict.
        line: template line that raised or wrote it, or the `if` that was not taken; None where unknown.
        profile: what the template got besides the messages.
        moved_to: where a moved run is written; None for other verdicts.
    """

    preceding: Preceding
    placement: Follows
    leading: bool
    role: SystemRole
    tools: bool
    shape: Shape
    kwargs: Mapping[str, Any]
    verdict: Verdict
    successor_moves: bool | None = None
    error: str | None = None
    line: int | None = None
    profile: Profile = "transformers"
    moved_to: MovedTo | None = None

    @property
    def pair(self) -> str:
        """Role before and what follows, such as `tool/tail`."""
        return f"{self.preceding}/{self.placement}"

    @property
    def unswitched(self) -> bool:
        """Whether no switch is set and messages are prepared as transformers does."""
        return not self.kwargs and self.profile == "transformers"

    @property
    def usual(self) -> bool:
        """Whether it belongs to the plain matrix, in either role."""
        return self.unswitched and self.shape == "plain"


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompts of one template, each rendered once.

    Attributes:
        template: what renders them.
        kwargs: chat-template kwargs of all of them.
        now: the clock.
        profile: what the template gets besides the messages.
    """

    template: ChatTemplate
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    now: datetime | None = None
    profile: Profile = "transformers"
    _known: dict[tuple[Conversation, bool, bool], PromptText | RenderError] = field(
        default_factory=dict, repr=False
    )

    def request(self, conversation: Conversation, tools: bool) -> Request:
        """Return a conversation as a client would send it."""
        messages = tuple(Message(MESSAGES[name], index) for index, name in enumerate(conversation))
        return Request(messages, TOOLS if tools else None, self.kwargs, self.now)

    def source(self, tools: bool) -> TemplateSource:
        """Return the template that a request gets, with or without tools."""
        return self.template.choose(TOOLS if tools else None)

    def prompt(self, conversation: Conversation, tools: bool, *, prompted: bool = False) -> str | RenderError:
        """Return a prompt, with a generation prompt where `prompted`, or what the template raised."""
        outcome = self._rendered(conversation, tools, prompted, None)
        return outcome if isinstance(outcome, RenderError) else outcome.text

    def with_run(self, case: Case) -> PromptText | RenderError:
        """Return the prompt with the run, and the place of its first text, or what the template raised."""
        return self._rendered(case.conversation, case.tools, case.prompted, TEXTS[case.run[0]])

    def render(self, cases: Iterable[Case]) -> None:
        """Render at once the prompts before and with the runs of several cases."""
        cases = list(cases)
        self._render(
            [
                *((case.history, case.tools, False, None) for case in cases),
                *((case.conversation, case.tools, case.prompted, TEXTS[case.run[0]]) for case in cases),
            ]
        )

    def render_plain(self, conversations: Iterable[tuple[Conversation, bool]]) -> None:
        """Render at once several conversations, each with or without tools, without a generation prompt."""
        self._render([(conversation, tools, False, None) for conversation, tools in conversations])

    def _rendered(
        self, conversation: Conversation, tools: bool, prompted: bool, text: str | None
    ) -> PromptText | RenderError:
        key = (conversation, tools and self.template.sees_tools, prompted)
        if key not in self._known:
            self._render([(conversation, tools, prompted, text)])
        return self._known[key]

    def _render(self, wanted: Iterable[tuple[Conversation, bool, bool, str | None]]) -> None:
        tasks: dict[tuple[Conversation, bool, bool], RenderTask] = {}
        for conversation, tools, prompted, text in wanted:
            key = (conversation, tools and self.template.sees_tools, prompted)
            if key not in self._known and key not in tasks:
                tasks[key] = self._task(conversation, tools, prompted, text)
        if tasks:
            outcomes = self.template.render_many(list(tasks.values()))
            self._known.update(zip(tasks, outcomes, strict=True))

    def _task(
        self, conversation: Conversation, tools: bool, prompted: bool, text: str | None = None
    ) -> RenderTask:
        return RenderTask(self.request(conversation, tools), prompted, self.profile, text)

    def line_at(
        self, conversation: Conversation, tools: bool, offset: int, *, prompted: bool = False
    ) -> int | None:
        """Return the template line that wrote a character of a prompt."""
        (line,) = self.lines_at([(conversation, tools, prompted, offset)])
        return line

    def lines_at(self, wanted: Iterable[tuple[Conversation, bool, bool, int]]) -> list[int | None]:
        """Return the template lines that wrote characters of several prompts."""
        asked = [
            (self._task(conversation, tools, prompted), offset)
            for conversation, tools, prompted, offset in wanted
        ]
        return [
            chunk.line if isinstance(chunk, Chunk) else None
            for chunk in (self.template.chunks_at(asked) if asked else ())
        ]


#: Placements whose prompts show whether a switch matters: the first of them that the template renders.
_REPRESENTATIVES = (
    REPRESENTATIVE,
    Case("user", "tail", True, "system", False),
    Case("user", "tail", False, "system", False),
)


def examine_placements(
    template: ChatTemplate, *, kwargs: Mapping[str, Any] | None = None, now: datetime | None = None
) -> tuple[PlacementReport, ...]:
    """Say what a template does with system turns at every placement.

    The plain matrix comes first, then further shapes; then what changes in the plain matrix where messages
    are passed on as given (profile `raw`), and with each switch of the template.

    Raises:
        RenderError: the template is not valid Jinja.
    """
    for source in template.sources.values():
        source.check()
    prompts = Prompts(template, kwargs or {}, now)
    reports = examine_all(prompts, PLAIN + FURTHER)
    usual = dict(zip(PLAIN, reports, strict=False))
    for variant, extra in _variants(prompts):
        for report, plain in zip(examine_all(variant, tuple(usual)), usual.values(), strict=True):
            if report.verdict != plain.verdict:
                reports.append(dataclasses.replace(report, kwargs=extra, profile=variant.profile))
    return tuple(reports)


def examine(prompts: Prompts, case: Case) -> PlacementReport:
    """Say what a template does with the system turns of one case."""
    (report,) = examine_all(prompts, (case,))
    return report


def examine_all(prompts: Prompts, cases: Sequence[Case]) -> list[PlacementReport]:
    """Say what a template does with the system turns of several cases, rendering for all of them at once."""
    prompts.render(cases)
    found = [_judged(prompts, case) for case in cases]
    prompts.render_plain(
        (case.without_run, case.tools)
        for case, each in zip(cases, found, strict=True)
        if each.before is not None and case.successor
    )
    wanted = [
        (case.conversation, case.tools, case.prompted, each.offset)
        for case, each in zip(cases, found, strict=True)
        if each.offset is not None
    ]
    lines = iter(prompts.lines_at(wanted))
    return [
        dataclasses.replace(
            each.report,
            line=each.report.line if each.offset is None else next(lines),
            successor_moves=None if each.before is None else _successor_moves(prompts, case, each.before),
        )
        for case, each in zip(cases, found, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Judged:
    """A report that lacks what further renders have to tell.

    Attributes:
        report: the report.
        offset: the character of the prompt whose template line is asked for; None where there is none to ask.
        before: the prompt before the run, where it matters whether the successor alone changes it.
    """

    report: PlacementReport
    offset: int | None = None
    before: str | None = None


def _judged(prompts: Prompts, case: Case) -> _Judged:
    before = prompts.prompt(case.history, case.tools)
    if isinstance(before, RenderLimit):
        return _Judged(_report(case, "not-evaluated", error=str(before)))
    if isinstance(before, RenderError):
        why = f"the template does not render the conversation before it: {before}"
        return _Judged(_report(case, "not-evaluated", error=why, line=before.line))
    predecessor = TEXTS[case.predecessor]
    if not occurrences(before, predecessor):
        why = f"the template does not write the {case.preceding} turn before it"
        return _Judged(_report(case, "not-evaluated", error=why))
    prompt = prompts.with_run(case)
    if isinstance(prompt, RenderLimit):
        return _Judged(_report(case, "not-evaluated", error=str(prompt)))
    if isinstance(prompt, RenderError):
        return _Judged(_report(case, "raises", error=str(prompt), line=prompt.line), before=before)
    successor = TEXTS[case.successor] if case.successor else None
    found = judge(before, prompt.text, [TEXTS[name] for name in case.run], predecessor, successor)
    moved_to = _moved_to(prompt.text, case, found.offset) if found.verdict == "moved" else None
    line, offset = None, None
    if found.offset is None:
        line = prompts.source(case.tools).skipped_branch_line(case.role)
    elif prompt.place is not None and (found.verdict == "in-place" or prompt.place.covers(found.offset)):
        line = prompt.place.line
    else:
        offset = min(found.offset, len(prompt.text) - 1)
    report = _report(case, found.verdict, line=line, moved_to=moved_to)
    return _Judged(report, offset, None if found.verdict == "in-place" else before)


def _moved_to(prompt: str, case: Case, offset: int | None) -> MovedTo | None:
    if offset is None:
        return None
    if any(offset < place for place in occurrences(prompt, TEXTS["user"])[:1]):
        return "front"
    after = occurrences(prompt, TEXTS[case.successor]) if case.successor else []
    return "later" if after and offset > after[-1] else "earlier"


def _successor_moves(prompts: Prompts, case: Case, before: str) -> bool | None:
    if case.successor is None:
        return None
    prompt = prompts.prompt(case.without_run, case.tools)
    return None if isinstance(prompt, RenderError) else not prompt.startswith(before.rstrip())


def _report(case: Case, verdict: Verdict, **rest: Any) -> PlacementReport:
    return PlacementReport(
        case.preceding, case.placement, case.leading, case.role, case.tools, case.shape, {}, verdict, **rest
    )


def _variants(prompts: Prompts) -> Iterator[tuple[Prompts, dict[str, Any]]]:
    """Yield the other profile, and the switches, with which a representative placement's prompt changes."""
    raw = Prompts(prompts.template, prompts.kwargs, prompts.now, "raw")
    place = REPRESENTATIVE
    for each in (prompts, raw):
        each.render_plain([(place.history, place.tools), (place.conversation, place.tools)])
    if _outcome(raw, REPRESENTATIVE) != _outcome(prompts, REPRESENTATIVE):
        yield raw, {}
    case = next((case for case in _REPRESENTATIVES if _renders(prompts, case)), None)
    if case is None:
        return
    usual = _outcome(prompts, case)
    for name, values in switches(prompts.source(case.tools)).items():
        for value in values if name not in prompts.kwargs else ():
            variant = Prompts(prompts.template, {**prompts.kwargs, name: value}, prompts.now)
            variant.render_plain([(case.history, case.tools), (case.conversation, case.tools)])
            if _renders(variant, case) and _outcome(variant, case) != usual:
                yield variant, {name: value}


def _renders(prompts: Prompts, case: Case) -> bool:
    """Tell whether what stands before the run renders; a value with which it does not is none."""
    return isinstance(prompts.prompt(case.history, case.tools), str)


def _outcome(prompts: Prompts, case: Case) -> tuple[str, str]:
    """Return the prompts before and with the run, or what the template raised.

    Without the generation prompt: a setting that changes nothing else cannot change what becomes of a run.
    """
    with_run = prompts.prompt(case.conversation, case.tools)
    return str(prompts.prompt(case.history, case.tools)), str(with_run)
