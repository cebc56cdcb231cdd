"""What servers conclude about a template's system turns, what they then do, and where they are wrong.

Some servers render a small conversation of their own and look at the outcome; others pass everything on.
Their tests are reproduced exactly, weaknesses included, and compared with the placement matrix: a false
positive is a placement that the server accepts although the template does not write it in place, a false
negative one that it rewrites although the template does. Facts: docs/servers.md, sections 1 (oMLX;
jundot/omlx#2753, jundot/omlx#1991), 8 to 11 (mlx-lm, llama.cpp, vLLM; vllm-project/vllm#46025, SGLang;
sgl-project/sglang#28906) and 13 (LM Studio).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ..conversation import Message, Request
from ..policies.kind import Answer, AsksOnce, AsksPlacements, Decision, PassesOn, ServerCheck
from ..policies.registry import POLICIES
from ..policies.rewrite.relocation import relocate
from ..policies.rewrite.system_turns import Placement
from ..policies.servers.omlx_probe import probe_messages
from ..templates.template import ChatTemplate
from .mid_system import PlacementReport
from .placements import TOOLS, destination, in_words
from .verdicts import Verdict

#: The placements that servers ask about.
PAIRS = (
    Placement("user", "tail"),
    Placement("user", "between"),
    Placement("tool", "tail"),
    Placement("tool", "between"),
)
_SPOILT = ("raises", "dropped", "moved", "duplicated")
_WORST_FIRST: tuple[Decision, ...] = ("raise", "hoist", "note", "inline")
#: What is reported, and the policy that does it, in the order of reports.
_CHECKS: tuple[tuple[ServerCheck, str], ...] = tuple(
    sorted(
        (
            (check, f"{kind.name}:{check.options}" if check.options else kind.name)
            for kind in POLICIES.values()
            for check in kind.checks
        ),
        key=lambda each: each[0].position,
    )
)
#: The names in reports of servers and routes that pass system turns on to the template.
PASSING = tuple(check.name for check, _ in _CHECKS if isinstance(check, PassesOn))


@dataclass(frozen=True, slots=True)
class ServerReport:
    """What one server makes of a template. The names are the JSON names.

    Attributes:
        name: the server; after a colon a variant of it, or one of its routes.
        supported: per placement, whether the server takes the template to write system turns in place, for a
            request without tools.
        with_tools: the same for a request with tools, where the answer differs.
        decides: what it does with system turns that are not first, the worst of the four placements.
        at: the same per placement.
        why: what it saw.
        consequence: what that means for the conversation.
        false_positives: placements that it accepts although the template does not write them in place.
        false_negatives: placements that it rewrites although the template writes them in place.
        rejected_ids: the call ids of the server's own probe that the template refuses.
        policy: the policy that does what this server or route does, as `--policy` takes it.
    """

    name: str
    supported: Mapping[str, bool]
    decides: Decision
    at: Mapping[str, Decision]
    why: str
    consequence: str
    with_tools: Mapping[str, bool] = field(default_factory=dict)
    false_positives: tuple[str, ...] = ()
    false_negatives: tuple[str, ...] = ()
    rejected_ids: tuple[str, ...] = ()
    policy: str = ""


def examine_servers(
    template: ChatTemplate,
    placements: Sequence[PlacementReport],
    *,
    kwargs: Mapping[str, Any] | None = None,
    now: datetime | None = None,
) -> tuple[ServerReport, ...]:
    """Say what each server would conclude about a template."""
    request = Request((), kwargs=kwargs or {}, now=now)
    matrix = [each for each in placements if each.role == "system" and each.usual]
    return tuple(
        dataclasses.replace(_examined(check, template, request, matrix), policy=policy)
        for check, policy in _CHECKS
    )


def _examined(
    check: ServerCheck, template: ChatTemplate, request: Request, matrix: Sequence[PlacementReport]
) -> ServerReport:
    if isinstance(check, AsksPlacements):
        return _asking(check, template, request, matrix)
    if isinstance(check, AsksOnce):
        return _detecting(check, template, matrix)
    return _passing(check, matrix)


def _asking(
    check: AsksPlacements, template: ChatTemplate, request: Request, matrix: Sequence[PlacementReport]
) -> ServerReport:
    answers = check.answers(template, request, PAIRS)
    supported = {str(place): answer.in_place for place, answer in answers.items()}
    with_tools = supported
    if template.sees_tools and not check.leading:
        equipped = check.answers(template, request.replace(tools=TOOLS), PAIRS)
        with_tools = {str(place): answer.in_place for place, answer in equipped.items()}
    at: dict[str, Decision] = {
        str(place): "inline" if answer.in_place else check.otherwise(place)
        for place, answer in answers.items()
    }
    report = ServerReport(
        check.name,
        supported,
        _worst(at.values()),
        at,
        _reasons(answers),
        _asking_consequence(at, check.elsewhere),
        with_tools={} if with_tools == supported else with_tools,
        rejected_ids=check.rejected_ids(template, request, answers),
    )
    hook = getattr(template, "relocate_mid_system_messages", None)
    if callable(hook):
        return dataclasses.replace(report, consequence=_relocated(hook, report.consequence))
    if not all(answer.evaluated for answer in answers.values()):
        return report
    return _compared(report, [row for row in matrix if row.leading or not check.leading])


def _reasons(answers: Mapping[Placement, Answer]) -> str:
    """Join the answers' reasons, each with the placements that have it."""
    places: dict[str, list[Placement]] = {}
    for place, answer in answers.items():
        places.setdefault(answer.why, []).append(place)
    if len(places) == 1:
        return next(iter(places))
    return "; ".join(f"{_in_words(found)} {why}" for why, found in places.items())


#: What the servers that put system turns in front do with all of them, once there is one that has to go.
_HOIST = (
    "all system turns are joined into one first message{how}: each new one makes that message longer, "
    "and everything after it is computed again"
)
_DECIDES: dict[Decision, str] = {
    "inline": "it stays where it is",
    "note": "it becomes a [System note] at the end of that user turn",
    "hoist": _HOIST.format(how=""),
}


def _asking_consequence(at: Mapping[str, Decision], elsewhere: str) -> str:
    places: dict[Decision, list[Placement]] = {}
    for place in PAIRS:
        places.setdefault(at[str(place)], []).append(place)
    if len(places) == 1:
        words = _DECIDES[next(iter(places))]
    else:
        words = "; ".join(f"{_in_words(found)} {_DECIDES[decision]}" for decision, found in places.items())
    return f"{words}, {elsewhere}" if set(places) == {"inline"} else words


def _in_words(places: Iterable[Placement]) -> str:
    return in_words(((place.preceding, place.kind) for place in places), ("tail", "between"))


def _relocated(hook: Callable[[list[dict[str, Any]]], Any], otherwise: str) -> str:
    """Say at which placements the template object's own hook moves the run before any probe."""
    moved = []
    for place in PAIRS:
        messages = tuple(Message(data, index) for index, data in enumerate(probe_messages(place)))
        if relocate(messages, hook).messages != messages:
            moved.append(place)
    if not moved:
        return otherwise
    return f"the template's own hook moves it {_in_words(moved)}; else {otherwise}"


def _detecting(check: AsksOnce, template: ChatTemplate, matrix: Sequence[PlacementReport]) -> ServerReport:
    answer = check.test(template)
    decides: Decision = "inline" if answer.in_place else "hoist"
    consequence = _template_does(matrix) if answer.in_place else _HOIST.format(how=check.joined)
    pairs = [str(place) for place in PAIRS]
    supported = dict.fromkeys(pairs, answer.in_place)
    report = ServerReport(
        check.name, supported, decides, dict.fromkeys(pairs, decides), answer.why, consequence
    )
    return _compared(report, matrix, everywhere=True) if answer.evaluated else report


def _passing(check: PassesOn, matrix: Sequence[PlacementReport]) -> ServerReport:
    """Report on a server that asks nothing: what happens is what the matrix says."""
    verdicts = {str(place): {row.verdict for row in matrix if row.pair == str(place)} for place in PAIRS}
    supported = {pair: seen == {"in-place"} for pair, seen in verdicts.items()}
    at: dict[str, Decision] = {
        pair: "raise" if "raises" in seen else "inline" for pair, seen in verdicts.items()
    }
    return ServerReport(
        check.name,
        supported,
        _worst(at.values()),
        at,
        "it tests nothing and passes all messages on to the template",
        _template_does(matrix, f" with {check.failure}"),
    )


_DOES: dict[Verdict, str] = {
    "raises": "the template raises an error, and the request fails{how}",
    "dropped": "the template leaves it out: the model never sees it",
    "moved": "the template writes it {where}, and all from there on is computed again",
    "duplicated": "the template writes it twice",
    "unstable": "the template changes the prompt before it, which is computed again",
    "not-evaluated": "what the template does could not be tested",
}


def _template_does(matrix: Sequence[PlacementReport], how: str = "") -> str:
    """Say what the template does with system turns that reach it in place, and how a request fails then."""
    every = dict.fromkeys((row.preceding, row.placement) for row in matrix)
    parts = []
    for verdict, text in _DOES.items():
        rows = [row for row in matrix if row.verdict == verdict]
        found = dict.fromkeys((row.preceding, row.placement) for row in rows)
        if found:
            does = text.format(how=how, where=destination(row.moved_to for row in rows))
            parts.append(does if len(found) == len(every) else f"{in_words(found)} {does}")
    return "; ".join(parts) or "it stays where it is"


def _worst(decisions: Iterable[Decision]) -> Decision:
    found = set(decisions)
    return next(decision for decision in _WORST_FIRST if decision in found)


def _compared(
    report: ServerReport, matrix: Sequence[PlacementReport], *, everywhere: bool = False
) -> ServerReport:
    """Add where a server is wrong; `everywhere` for a server that leaves turns in place at any placement."""
    verdicts: dict[str, list[str]] = {}
    for row in matrix:
        verdicts.setdefault(row.pair, []).append(row.verdict)
    positives, negatives = [], []
    for pair, seen in verdicts.items():
        inline = report.supported.get(pair, report.decides == "inline" if everywhere else None)
        evaluated = [verdict for verdict in seen if verdict != "not-evaluated"]
        if inline is True and any(verdict in _SPOILT for verdict in evaluated):
            positives.append(pair)
        if inline is False and evaluated and all(verdict == "in-place" for verdict in evaluated):
            negatives.append(pair)
    return dataclasses.replace(report, false_positives=tuple(positives), false_negatives=tuple(negatives))
