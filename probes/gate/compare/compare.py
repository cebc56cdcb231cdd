"""Comparing what two versions of a model's templates do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..observe.behaviour import LLAMACPP, Behaviour, View, alone
from ..observe.prompts import PromptOutline
from ..observe.shapes import SHAPES
from ..subject import Subject
from .compare_placements import compare_placements
from .compare_prompts import compare_prompt
from .compare_thinking import compare_findings, compare_thinking
from .differences import UNKNOWN, Difference, Kind, reported_placements
from .edits import Pair


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was compared, for outputs that list what passed as well.

    Attributes:
        subject: what was compared.
        compared: how many renders or verdicts of both sides were compared.
    """

    subject: Subject
    compared: int


@dataclass(frozen=True, slots=True)
class BehaviourComparison:
    """All differences between two behaviours, and what was compared."""

    differences: tuple[Difference, ...]
    checks: tuple[Check, ...]
    text_changed: bool


def compare(base: Behaviour, head: Behaviour) -> BehaviourComparison:
    """Compare two behaviours."""
    differences: list[Difference] = []
    checks: list[Check] = []
    for name in dict.fromkeys(("", *sorted({*base.digests, *head.digests}))):
        old, new = base.views.get(name), head.views.get(name)
        if old is not None and new is not None:
            if not name or base.digests[name] != head.digests[name]:
                differences += (
                    replace(each, subject=replace(each.subject, view=name))
                    for each in _compare_views(old, new, head, name)
                )
                checks += (
                    Check(replace(check.subject, view=name), check.compared) for check in _checks(old, new)
                )
        elif name:
            differences += _missing(name, base, head)
    return BehaviourComparison(
        tuple(differences), tuple(check for check in checks if check.compared), base.digests != head.digests
    )


def _missing(name: str, base: Behaviour, head: Behaviour) -> Iterator[Difference]:
    """Yield what it means that only one side has a named template."""
    if name == "default" and 1 in (len(base.digests), len(head.digests)):
        return  # the other side's only template, which `""` compares
    if name not in head.digests:
        yield Difference("regressed", "named-template", Subject("templates", name), "present", "missing")
    elif name not in base.digests:
        yield Difference("changed", "named-template", Subject("templates", name), "missing", "present")


def _compare_views(base: View, head: View, live: Behaviour, name: str) -> Iterator[Difference]:
    moved = list(compare_placements(base.placements, head.placements))
    yield from moved
    yield from compare_thinking(base.thinking, head.thinking)
    yield from compare_findings(base.findings, head.findings)
    template = live.template
    by_llamacpp = False
    if template is not None and name:
        template = alone(template, name)

    def locate(prompt: PromptOutline, offset: int) -> int | None:
        if template is None or prompt.request is None or prompt.text is None or by_llamacpp:
            return None
        try:
            return template.chunk_at(prompt.request, offset).line
        except IndexError:
            return None

    reported = reported_placements(moved)
    rules: dict[tuple[Subject, Pair], str] = {}
    for subject, before, after in _pairs(base, head):
        by_llamacpp = subject.variant == LLAMACPP
        for old, new in zip(before, after, strict=True):
            for difference in compare_prompt(subject, old, new, reported, locate):
                yield _with_usual_rule(difference, rules)
    for subject in base.engines:
        was, now = base.engines[subject], head.engines.get(subject)
        if now is not None and was != now:
            kind: Kind = "fixed" if now else "regressed"
            yield Difference(kind, "engines-differ", subject, _agreement(was), _agreement(now))


def _agreement(agree: bool) -> str:
    return "agree" if agree else "differ"


def _with_usual_rule(difference: Difference, rules: dict[tuple[Subject, Pair], str]) -> Difference:
    """Give the edits of a conversation with a switch the rule that they have without one.

    Only a prompt with its body shows that nothing but the generation prompt changed.
    """
    if difference.edit is None:
        return difference
    keys = [(difference.subject.usual, pair) for pair in difference.edit.pairs]
    known = {rules.setdefault(key, difference.rule) for key in keys}
    return replace(difference, rule=known.pop()) if len(known) == 1 else difference


def _pairs(
    base: View, head: View
) -> Iterator[tuple[Subject, tuple[PromptOutline, ...], tuple[PromptOutline, ...]]]:
    """Yield the conversations of both sides; one that was not rendered with a switch, without it."""
    for subject in dict.fromkeys((*base.prompts, *head.prompts)):
        if subject.variant == LLAMACPP and not (subject in base.prompts and subject in head.prompts):
            continue  # the engine was not there for one of them
        before = base.prompts.get(subject, base.prompts.get(subject.usual))
        after = head.prompts.get(subject, head.prompts.get(subject.usual))
        if before and after:
            turns = min(len(before), len(after))  # with a switch only the last request is rendered
            yield subject, before[-turns:], after[-turns:]


def _checks(base: View, head: View) -> Iterator[Check]:
    evaluated = sum(row.verdict != UNKNOWN for row in head.placements.values())
    yield Check(Subject("placements"), evaluated)
    yield Check(Subject("thinking"), sum(verdict != UNKNOWN for verdict in head.thinking.values()))
    counts = {shape.subject(): 0 for shape in SHAPES}
    for subject, before, after in _pairs(base, head):
        counts[subject.usual] += sum(
            old.rendered or new.rendered for old, new in zip(before, after, strict=True)
        )
    yield from (Check(subject, count) for subject, count in counts.items())
