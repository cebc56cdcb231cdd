"""`tplaudit render`: what each server's template would get, and the prompt it writes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from . import options
from .options import OUTPUT, SERVER
from .output import check_output, progress, say, stop, write_json, write_rich, write_text

if TYPE_CHECKING:
    from ..probes.attribution.render_report import RenderPlan, RenderReport
    from ..probes.templates.llamacpp import LlamaCppEngine
    from ..probes.templates.template import ChatTemplate
    from ..probes.tokenization.tokens import IncrementalEncoder


class TemplateEngine(StrEnum):
    """Another template engine to render with."""

    llamacpp = "llamacpp"


@dataclass(frozen=True, slots=True)
class RenderOptions(options.TranscriptOptions):
    """What `tplaudit render` is given."""

    engine: Annotated[
        TemplateEngine | None,
        options.option(
            SERVER,
            "Render with llama.cpp's own template engine as well, and show where it differs.",
            metavar="|".join(TemplateEngine),
        ),
    ] = None
    turn: Annotated[
        int | None,
        options.option(
            OUTPUT, "Only this turn, counted from 1. Without it the last one, with --json all.", min=1
        ),
    ] = None
    diff: Annotated[
        tuple[str, str] | None,
        options.option(OUTPUT, "Show how two policies' prompts of one turn differ.", metavar="POLICY POLICY"),
    ] = None
    diff_turns: Annotated[
        tuple[int, int] | None,
        options.option(OUTPUT, "Show how the prompts of two turns differ, under each policy.", metavar="A B"),
    ] = None
    full: Annotated[
        bool, options.option(OUTPUT, "Show messages and prompt of every policy, and fold nothing.", "--full")
    ] = False
    as_json: options.Json = False
    output: options.Output = None


@options.taken_from(RenderOptions)
def command(given: RenderOptions) -> None:
    """Render a transcript as each server would: its messages, its prompt, and what was done to them.

    First comes what each policy does to the system messages of one turn. Where the policies have at most two
    different results, the messages before and after and the prompt follow.
    """
    _check(given)
    plan = _plan(given)
    members = None if given.model is None or given.template else _members(given.model)
    if members is None:
        reports = [_report(plan, *_load(given.model, given))]
    else:
        reports = [_of_member(plan, member, given) for member in members]
    _write(given, reports, is_folder=members is not None)
    if not any(report.prompts for report in reports):
        why = next((error for report in reports for error in report.errors), "there is no turn")
        say(f"tplaudit: no turn rendered under any policy ({why}); try another --policy or template")
        stop(2)


def _check(given: RenderOptions) -> None:
    """Refuse options that contradict each other, and files that are read twice or overwritten."""
    from ..probes.errors import UsageError

    diff, diff_turns = given.diff, given.diff_turns
    if diff and diff_turns:
        what = "two policies and two turns cannot be compared at once"
        raise UsageError(what, where="--diff", fix="leave out --diff or --diff-turns")
    if diff and given.policy:
        raise UsageError("it names the policies already", where="--diff", fix="leave out --policy")
    if diff_turns and given.turn:
        raise UsageError("it names the turns already", where="--diff-turns", fix="leave out --turn")
    if diff_turns and min(diff_turns) < 1:
        raise UsageError("turns count from 1", where="--diff-turns", fix="give two turns such as 1 2")
    options.check_one_stdin([given.transcript, given.model, given.template, given.tokenizer])
    check_output(given.output, [given.transcript, given.model, given.template])


def _plan(given: RenderOptions) -> RenderPlan:
    from ..probes.attribution.render_report import RenderPlan
    from ..probes.policies.registry import parse_policy
    from ..probes.transcripts.reader import open_transcript

    policies = [
        parse_policy(name) for name in (given.diff or options.policy_names(given.policy, given.policy_code))
    ]
    return RenderPlan(
        transcript=open_transcript(given.transcript).with_kwargs(options.read_kwargs(given.kwargs)),
        policies=policies,
        turn=given.turn,
        every=given.as_json and not given.diff,
        diff=given.diff is not None,
        diff_turns=given.diff_turns,
        engine=_llamacpp() if given.engine else None,
    )


def _llamacpp() -> LlamaCppEngine:
    from ..probes.templates.llamacpp import LlamaCppEngine

    return LlamaCppEngine()


def _members(model: str) -> tuple[str, ...] | None:
    from ..probes.placements.sweep import folder_members

    return folder_members(model)


def _load(model: str | None, given: RenderOptions) -> tuple[ChatTemplate, IncrementalEncoder | None]:
    """Load the template, and a tokenizer unless a bare template comes without one."""
    from ..probes.models.bundled import bundled_model

    special_tokens, now = options.read_special_tokens(given.special_token), options.read_now(given.now)
    whole = model is None or bundled_model(model) or Path(model).is_dir()
    if model is not None and not whole and given.tokenizer is None and given.template is None:
        from ..probes.models.template_files import check_compiles, load_template

        template = load_template(model, special_tokens=special_tokens, now=now)
        check_compiles(template)
        return template, None
    from ..probes.models.model import load_model
    from ..probes.tokenization.tokens import IncrementalEncoder

    loaded = load_model(
        model,
        template=given.template,
        tokenizer=given.tokenizer,
        special_tokens=special_tokens,
        now=now,
    )
    return loaded.template, IncrementalEncoder(loaded.tokenizer)


def _of_member(plan: RenderPlan, name: str, given: RenderOptions) -> RenderReport:
    """Render with one template of a folder; one that cannot be read is a report too."""
    from ..probes.attribution.render_report import RenderReport
    from ..probes.errors import InputError

    try:
        loaded = _load(name, given)
    except InputError as error:
        return RenderReport(plan.transcript.source, name, error=str(error))
    return _report(plan, *loaded)


def _report(plan: RenderPlan, template: ChatTemplate, encoder: IncrementalEncoder | None) -> RenderReport:
    """Render, with progress on stderr where all turns are wanted."""
    from ..probes.attribution.render_report import render_turns

    if not plan.every or sys.stderr is None or not sys.stderr.isatty():
        return render_turns(plan, template, encoder)
    with progress("rendering …") as status:
        return render_turns(plan, template, encoder, lambda turn: status.update(f"turn {turn}"))


def _write(given: RenderOptions, reports: Sequence[RenderReport], *, is_folder: bool) -> None:
    from ..probes.attribution.render_report import several_to_json, to_json

    if given.as_json:
        write_json(several_to_json(reports) if is_folder else to_json(reports[0]), given.output)
    elif given.diff or given.diff_turns:
        _write_diffs(reports, given.output)
    else:
        from .formats.render_text import draw

        write_rich(lambda console: draw(reports, console, full=given.full), given.output)


def _write_diffs(reports: Sequence[RenderReport], output: Path | None) -> None:
    """Write the diffs: coloured on a terminal, elsewhere exactly the texts."""
    from .formats.diff_text import draw, plain

    if output is None and sys.stdout.isatty():
        write_rich(lambda console: draw(reports, console), output)
    else:
        write_text(plain(reports), output)
