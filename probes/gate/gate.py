"""The gate itself: load both sides, observe them, compare, replay transcripts, evaluate budgets, decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from pathlib import Path
from typing import Literal

from ...fixtures import DEFAULT_MODEL, TRANSCRIPTS
from ..errors import InputError, UsageError
from ..findings import Severity
from ..templates.template import ChatTemplate
from .advice import all_patterns
from .allowances import Allowance, KnownFailure
from .budgets import evaluate
from .compare.compare import BehaviourComparison, Check, compare
from .compare.compare_transcripts import compare_replays, compare_transcript
from .compare.differences import Difference, reported_placements
from .compare.grouping import changes
from .observe.behaviour import CLOCK, Behaviour, Observing, observe, variants_of
from .observe.engine import engine_or_reason
from .observe.replays import Replaying, ReplayNumbers, named, replay, replayed, transcripts_in
from .prediction import Predictor, calibrated, predictor
from .report import BudgetResult, GateReport, GateSide, fails, outcome, severities
from .settings import GateSettings
from .sources import MissingAtRevision, annotated_path, in_the_model_of, is_bare, load_side
from .subject import Subject


@dataclass(frozen=True, slots=True)
class Gate:
    """Everything that a run of the gate needs to know.

    Attributes:
        settings: what is compared and asked for; base and head are set.
        special_tokens: replace both sides' own of the same names.
        now: the clock of templates.
        today: the day on which known failures expire or do not.
        llamacpp: whether llama.cpp's engine is asked too, where it is installed.
        fail_on: the least severity that lets the gate fail; `never` decides as `error` does.
    """

    settings: GateSettings
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    now: datetime = CLOCK
    today: date | None = None
    llamacpp: bool = True
    fail_on: Severity | Literal["never"] = "error"


def run_gate(gate: Gate) -> GateReport:
    """Say what the change from base to head does.

    Raises:
        InputError: a side, a transcript or the tokenizer cannot be read.
        UsageError: a side is missing, or the settings contradict each other.
    """
    with ExitStack() as keep:
        return _run(gate, keep)


def _run(gate: Gate, keep: ExitStack) -> GateReport:
    settings = gate.settings.check()
    if not settings.base or not settings.head:
        missing = "--head" if settings.base else "--base"
        raise UsageError("there is nothing to compare", where=missing, fix="give --base OLD and --head NEW")
    if settings.base == settings.head == "-":
        raise UsageError("stdin can be read once, and both sides are -", where="--base", fix="name a file")
    head = load_side(settings.head, gate.special_tokens, keep=keep)
    try:
        base = load_side(settings.base, gate.special_tokens, other=settings.head, keep=keep)
    except MissingAtRevision as error:
        if any(allowance.kind == "new" for allowance in settings.allowances):
            return _new(gate, head, error)
        raise
    notes = []
    if is_bare(settings.base) != is_bare(settings.head):
        if is_bare(settings.base):
            base = in_the_model_of(base, head, keep)
        else:
            head = in_the_model_of(head, base, keep)
        notes.append("the template without special tokens was rendered with those of the other side")
    predicting = _predicting(settings, head, base) if settings.limits_seconds else None
    engine, reason = engine_or_reason() if gate.llamacpp else (None, "")
    if reason:
        notes.append(f"llama.cpp's engine was not asked: {reason}")
    variants = tuple(
        dict.fromkeys((*variants_of(base, settings.kwargs), *variants_of(head, settings.kwargs)))
    )
    observing = Observing(settings.kwargs, gate.now, engine)
    found = compare(observe(base, variants, observing), observe(head, variants, observing))
    replayed = _replay(gate, base, head, found) if settings.replays else _Replayed()
    budgets = tuple(evaluate(settings.budgets, replayed.numbers, predicting))
    if predicting is not None:
        prefills = [each for _, numbers in replayed.numbers for each in numbers.prefills]
        notes += predicting.explained(prefills)
    differences = (*found.differences, *replayed.differences)
    everything = replace(found, differences=differences, checks=(*found.checks, *replayed.checks))
    sides = (base_side(base), base_side(head))
    return judge(gate, sides, everything, budgets, notes=(*notes, *replayed.notes))


def judge(
    gate: Gate,
    sides: tuple[GateSide, GateSide],
    found: BehaviourComparison,
    budgets: Sequence[BudgetResult] = (),
    notes: Sequence[str] = (),
) -> GateReport:
    """Make the report of a comparison: put differences together, apply what was agreed to, decide."""
    settings = gate.settings
    compared = sum(check.compared for check in found.checks)
    differences = list(found.differences)
    if found.text_changed and compared and not differences:
        differences.append(Difference("cosmetic", "text-only", Subject("templates", "text"), None, None))
    today = gate.today or date.today()
    known = [entry for entry in settings.known if not entry.expired(today)]
    used: set[Allowance | KnownFailure] = set()
    merged = changes(differences, settings.allowances, known, used)
    evaluated = tuple(_known_budget(budget, known, used) for budget in budgets)
    warnings = (
        *(
            f"ignore entry {entry.text!r} expired on {entry.expires}"
            for entry in settings.known
            if entry.expired(today)
        ),
        *(f"ignore entry {entry.text!r} matches nothing" for entry in known if entry not in used),
        *(
            f"--allow {allowance.text} matches nothing"
            for allowance in settings.allowances
            if allowance not in used and allowance.kind != "new"
        ),
    )
    empty = [] if compared else ["nothing was checked: neither side renders any conversation"]
    empty += (
        f"nothing was checked of {check.subject}: no turn renders"
        for check in found.checks
        if not check.compared
    )
    severe = severities(merged, evaluated, warnings)
    least: Severity = "error" if gate.fail_on == "never" else gate.fail_on
    return GateReport(
        verdict="fail" if empty or fails(severe, least) else "pass",
        outcome=outcome(merged, compared),
        base=sides[0],
        head=sides[1],
        path=annotated_path(settings.head or ""),
        changes=merged,
        budgets=evaluated,
        checks=found.checks,
        notes=(*empty, *notes),
        warnings=warnings,
        allow=all_patterns(merged),
    )


def base_side(template: ChatTemplate | Behaviour) -> GateSide:
    """Describe one side for a report."""
    if isinstance(template, Behaviour):
        return GateSide(template.source, dict(template.digests))
    return GateSide(
        template.source, {name: source.sha256 for name, source in sorted(template.sources.items())}
    )


def _new(gate: Gate, head: ChatTemplate, error: InputError) -> GateReport:
    """Report on a template that the base does not have, which somebody has allowed."""
    return GateReport(
        verdict="pass",
        outcome="nothing-checked",
        base=GateSide(gate.settings.base or "", {}),
        head=base_side(head),
        path=annotated_path(gate.settings.head or ""),
        notes=(f"the template is new, as --allow new permits ({error.what})",),
    )


def _known_budget(
    budget: BudgetResult, known: Sequence[KnownFailure], used: set[Allowance | KnownFailure]
) -> BudgetResult:
    if budget.passed:
        return budget
    subject = Subject("replay", named(budget.transcript), budget.policy)
    entry = next((each for each in known if each.covers(budget.name, subject)), None)
    if entry is None:
        return budget
    used.add(entry)
    return replace(budget, accepted=entry.reason)


@dataclass(frozen=True, slots=True)
class _Replayed:
    """What the transcripts gave."""

    differences: tuple[Difference, ...] = ()
    checks: tuple[Check, ...] = ()
    numbers: tuple[tuple[ReplayNumbers, ReplayNumbers], ...] = ()
    notes: tuple[str, ...] = ()


def _replay(gate: Gate, base: ChatTemplate, head: ChatTemplate, found: BehaviourComparison) -> _Replayed:
    from ..policies.registry import DEFAULTS, parse_policy
    from ..tokenization.files import load_bundled_tokenizer, load_tokenizer_named
    from ..transcripts.reader import open_transcript

    settings = gate.settings
    policies = [parse_policy(name) for name in dict.fromkeys(settings.policies or DEFAULTS)]
    spec = settings.tokenizer or _model_with("tokenizer.json", head, base)
    replaying = Replaying(
        policies,
        load_tokenizer_named(str(spec)) if spec else load_bundled_tokenizer(),
        _model_with("config.json", head, base) or DEFAULT_MODEL,
        settings.block_size,
    )
    notes = [] if spec else ["token counts are approximate: the bundled tokenizer counts; see --tokenizer"]
    reported = reported_placements(found.differences)
    differences: list[Difference] = []
    checks: list[Check] = []
    numbers: list[tuple[ReplayNumbers, ReplayNumbers]] = []
    for path in transcripts_in(Path(settings.transcripts) if settings.transcripts else TRANSCRIPTS):
        name = str(path) if settings.transcripts else path.name
        transcript = open_transcript(path).with_kwargs(settings.kwargs)
        turns = 0
        for policy in policies:
            for compared, differing in compare_transcript(transcript, base, head, policy, reported, gate.now):
                turns += compared
                differences += differing
        if turns:
            checks.append(Check(Subject("transcript", named(name)), turns))
        sides = [list(replay(name, transcript, side, replaying)) for side in (base, head)]
        for before, after in zip(*sides, strict=True):
            differences += compare_replays(before, after)
            numbers.append((before, after))
        checks.append(Check(replayed(sides[1][0]).usual, sum(each.rendered for each in sides[1])))
    caches = f"replayed against {_caches(numbers)}"
    return _Replayed(tuple(differences), tuple(checks), tuple(numbers), (caches, *notes))


def _caches(replays: Sequence[tuple[ReplayNumbers, ReplayNumbers]]) -> str:
    policies: dict[str, dict[str, None]] = {}
    layers: dict[str, None] = {}
    for _, numbers in replays:
        assert numbers.cache is not None  # a replay has one
        policies.setdefault(numbers.cache.described, {})[numbers.policy] = None
        layers[numbers.cache.layers] = None
    caches = "; ".join(f"{cache} ({', '.join(names)})" for cache, names in policies.items())
    return f"{caches}; layers: {', '.join(layers)}"


def _predicting(settings: GateSettings, *sides: ChatTemplate) -> Predictor:
    """Return what predicts seconds.

    Raises:
        UsageError: there is nothing to predict them from.
        InputError: the calibration cannot be read.
    """
    model = _model_with("config.json", *sides)
    if settings.prefill_rate is not None:
        found = predictor(settings.prefill_rate, None)
    else:
        found = calibrated(settings.calibration, model)
    if found is not None:
        return found
    if model is None:
        what = "a template alone does not say from which model's calibration"
        fix = "add --calibration FILE or --prefill-rate TOKENS_PER_SECOND"
    else:
        what = "this model was not calibrated on this machine"
        fix = "run tplaudit calibrate MODEL, or add --prefill-rate TOKENS_PER_SECOND"
    raise UsageError(f"seconds are predicted, and {what}", where="max-seconds", fix=fix)


def _model_with(file: str, *sides: ChatTemplate) -> Path | None:
    """Return the first side's model directory that has a file; None where neither is such a directory."""
    paths = (side.path for side in sides)
    return next((path for path in paths if path is not None and (path / file).is_file()), None)
