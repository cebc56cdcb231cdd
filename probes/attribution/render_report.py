"""The turns of a transcript as each server would render them: the value behind `tplaudit render`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ... import __version__
from ..conversation import Request, Transcript
from ..documents import several
from ..errors import UsageError
from ..policies.base import Policy
from ..templates.template import ChatTemplate
from ..tokenization.special_tokens import special_texts
from ..transcripts.grouping.conversations import Continuation, Conversations
from .prompt_diff import DiffSide, PromptDiff, compare
from .rendered import Rendered, RenderedTurn, render_turn, turn_to_json

if TYPE_CHECKING:
    from ..templates.llamacpp import LlamaCppEngine
    from ..tokenization.tokens import IncrementalEncoder

SCHEMA = "tplaudit.render/2"


@dataclass(frozen=True, slots=True)
class RenderPlan:
    """What to render, whatever the template.

    Attributes:
        transcript: the requests.
        policies: what the servers do to the messages first.
        turn: the one turn, counted from 1; None for `every`.
        every: without `turn`, render all turns instead of the last.
        diff: compare the prompts of the first two policies.
        diff_turns: compare each policy's prompts of these two turns, the only ones then.
        engine: renders once more with llama.cpp's engine, where given.
    """

    transcript: Transcript
    policies: Sequence[Policy]
    turn: int | None = None
    every: bool = False
    diff: bool = False
    diff_turns: tuple[int, int] | None = None
    engine: LlamaCppEngine | None = None


@dataclass(frozen=True, slots=True)
class RenderReport:
    """What one template made of the turns.

    Attributes:
        transcript: where the requests came from.
        template: where the template came from.
        turns: what was rendered.
        diffs: what was compared.
        error: why the template could not be read.
        special: the special tokens in the prompts of the last turn.
    """

    transcript: str
    template: str
    turns: tuple[RenderedTurn, ...] = ()
    diffs: tuple[PromptDiff, ...] = ()
    error: str | None = None
    special: tuple[str, ...] = ()

    @property
    def errors(self) -> list[str]:
        """Why there is no prompt, for each that is missing."""
        rows = [row for turn in self.turns for row in turn.policies]
        return [self.error] if self.error else [row.error for row in rows if row.error is not None]

    @property
    def prompts(self) -> int:
        """How many prompts there are."""
        return sum(row.prompt is not None for turn in self.turns for row in turn.policies)


def render_turns(
    plan: RenderPlan,
    template: ChatTemplate,
    encoder: IncrementalEncoder | None = None,
    progress: Callable[[int], None] | None = None,
) -> RenderReport:
    """Render the turns that a plan asks for.

    Args:
        plan: what to render.
        template: the model's chat template.
        encoder: counts the tokens, where there is a tokenizer.
        progress: told the number of each turn before it is rendered.

    Raises:
        InputError: the transcript cannot be read.
        UsageError: it has no such turn, or none.
    """
    turns: dict[int, RenderedTurn] = {}
    for continuation, request in _chosen(plan):
        if progress is not None:
            progress(continuation.turn)
        turns[continuation.turn] = render_turn(
            continuation, request, template, plan.policies, encoder=encoder, engine=plan.engine
        )
    diffs: tuple[PromptDiff, ...] = ()
    if plan.diff_turns is not None:
        pairs = zip(*(turns[number].policies for number in plan.diff_turns), strict=True)
        diffs = tuple(_compared(*plan.diff_turns, *pair) for pair in pairs)
    elif plan.diff:
        diffs = tuple(_compared(turn.turn, turn.turn, *turn.policies[:2]) for turn in turns.values())
    last = next(reversed(turns.values())).policies
    special = special_texts({row.prompt for row in last if row.prompt is not None}, template)
    return RenderReport(
        plan.transcript.source, template.source, tuple(turns.values()), diffs, special=special
    )


def _chosen(plan: RenderPlan) -> Iterator[tuple[Continuation, Request]]:
    """Yield the turns to render, each with what it continues. Requests behind the last one are not read."""
    wanted = plan.diff_turns or ((plan.turn,) if plan.turn else ())
    conversations = Conversations()
    count = 0
    last: tuple[Continuation, Request] | None = None
    for count, written in enumerate(plan.transcript, 1):
        request, continuation = conversations.add(count, written)
        last = continuation, request
        if count in wanted or (plan.every and not wanted):
            yield last
        if wanted and count >= max(wanted):
            return
    if last is None:
        fix = "give a transcript with messages"
        raise UsageError("there is no request in it", where=plan.transcript.source, fix=fix)
    if wanted:
        what = f"there is no turn {max(wanted)}, only {count}"
        raise UsageError(what, where=plan.transcript.source, fix="give a smaller number")
    if not plan.every:
        yield last


def _compared(old_turn: int, new_turn: int, old: Rendered, new: Rendered) -> PromptDiff:
    before, after = DiffSide(old.policy, old_turn, old.error), DiffSide(new.policy, new_turn, new.error)
    return compare(before, old.prompt, after, new.prompt)


def to_json(report: RenderReport) -> dict[str, Any]:
    """Return a report as docs/render.md describes it."""
    return {
        "schema": SCHEMA,
        "tplaudit": __version__,
        "transcript": report.transcript,
        "template": report.template,
        "turns": [turn_to_json(turn) for turn in report.turns],
        "diffs": [asdict(diff) for diff in report.diffs],
        "error": report.error,
    }


def several_to_json(reports: Sequence[RenderReport]) -> dict[str, Any]:
    """Return the reports on a folder of templates as one document."""
    return several(SCHEMA, map(to_json, reports))
