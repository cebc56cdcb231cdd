"""What servers conclude about a template's system turns, what they then do, and where they are wrong.

Some servers render a small conversation of their own and look at the outcome; others pass everything on.
Their tests are reproduced exactly, weaknesses included, and compared with the placement matrix: a false
positive is a placement that the server takes for good and the template spoils, a false negative one that it
rewrites although the template would have written it in place. Facts: docs/servers.md, sections 1 (oMLX;
jundot/omlx#2753, jundot/omlx#1991), 8 to 11 (mlx-lm, llama.cpp, vLLM; vllm-project/vllm#46025, SGLang;
sgl-project/sglang#28906) and 13 (LM Studio).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from ..conversation import Message, Request
from ..policies.rewrite.relocation import relocate
from ..policies.rewrite.system_turns import Placement
from ..policies.servers.inline_detection import sglang_test, vllm_test
from ..policies.servers.omlx_probe import CALL_ID, PROBE_TOOL, Answer, Probe, judge_probe, probe_messages
from ..templates.template import ChatTemplate
from .mid_system import PlacementReport
from .placements import TOOLS, destination, in_words
from .verdicts import Verdict

Decision = Literal["inline", "hoist", "note", "raise"]

#: The placements that oMLX asks about.
PAIRS = (
    Placement("user", "tail"),
    Placement("user", "between"),
    Placement("tool", "tail"),
    Placement("tool", "between"),
)
_LEADING_MARKER = "__OMLX_MID_SYSTEM_PROBE_LEADING__"
#: A call id that strict templates accept, in place of oMLX's.
_STRICT_CALL_ID = "omlxcall1"
_SPOILT = ("raises", "dropped", "moved", "duplicated")
_WORST_FIRST: tuple[Decision, ...] = ("raise", "hoist", "note", "inline")


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
        false_positives: placements that it takes for good and the template spoils.
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
    """Say what each server would conclude about a template.

    Args:
        template: the template, or an object that stands for one.
        placements: its placement matrix.
        kwargs: chat-template kwargs of the requests.
        now: the clock of the requests.
    """
    request = Request((), kwargs=kwargs or {}, now=now)
    matrix = [
        each
        for each in placements
        if each.role == "system"
        and each.shape == "plain"
        and not each.kwargs
        and each.profile == "transformers"
    ]
    _render_ahead(template, request)
    reports = (
        _omlx("omlx", template, request, matrix),
        _omlx("omlx:pr-1991", template, request, matrix, leading=True),
        _detecting("vllm", vllm_test(template), matrix, " without a separator"),
        _detecting("sglang", sglang_test(template), matrix),
        *(_passing(name, failure, matrix) for name, failure in PASSING.items()),
    )
    return tuple(dataclasses.replace(each, policy=_POLICIES.get(each.name, each.name)) for each in reports)


def _render_ahead(template: ChatTemplate, request: Request) -> None:
    """Render at once what the servers' tests are going to render one after the other."""
    arguments = {"kwargs": dict(request.kwargs), "now": request.now}
    template.render_ahead(
        {"messages": messages, "tools": tools, **arguments}
        for place in PAIRS
        for leading, tools in ((False, None), (True, None), *([(False, [PROBE_TOOL])] * template.sees_tools))
        for messages in [
            _behind_leading(probe_messages(place)) if leading else probe_messages(place)
        ]
    )


def _omlx(
    name: str,
    template: ChatTemplate,
    request: Request,
    matrix: Sequence[PlacementReport],
    *,
    leading: bool = False,
) -> ServerReport:
    """oMLX's probe; with `leading` as jundot/omlx#1991 proposes it for requests with a leading system."""
    answers = _omlx_answers(template, request, leading)
    supported = {str(place): answer.in_place for place, answer in answers.items()}
    with_tools = supported
    if template.sees_tools and not leading:
        equipped = _omlx_answers(template, request.replace(tools=TOOLS), leading)
        with_tools = {str(place): answer.in_place for place, answer in equipped.items()}
    at: dict[str, Decision] = {
        str(place): "inline" if answer.in_place else "note" if place.preceding == "user" else "hoist"
        for place, answer in answers.items()
    }
    report = ServerReport(
        name,
        supported,
        _worst(at.values()),
        at,
        _reasons(answers),
        _omlx_consequence(at),
        with_tools={} if with_tools == supported else with_tools,
        rejected_ids=_rejected_ids(template, request, answers, leading),
    )
    hook = getattr(template, "relocate_mid_system_messages", None)
    if callable(hook):
        return dataclasses.replace(report, consequence=_relocated(hook, report.consequence))
    return _compared(report, [row for row in matrix if row.leading or not leading])


def _omlx_answers(template: ChatTemplate, request: Request, leading: bool) -> dict[Placement, Answer]:
    probe = Probe()
    if not leading or template.supports_mid_system_messages is False:
        return {place: probe(template, place, request) for place in PAIRS}
    return {
        place: judge_probe(template, place, request, _behind_leading(probe_messages(place)))
        for place in PAIRS
    }


def _behind_leading(messages: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    return ({"role": "system", "content": _LEADING_MARKER}, *messages)


def _rejected_ids(
    template: ChatTemplate, request: Request, answers: Mapping[Placement, Answer], leading: bool
) -> tuple[str, ...]:
    """Return oMLX's call id where its probe fails with it and passes with nine letters and digits."""
    if template.supports_mid_system_messages is False:
        return ()
    for place, answer in answers.items():
        if place.preceding == "tool" and not answer.in_place:
            messages = probe_messages(place, call_id=_STRICT_CALL_ID)
            if leading:
                messages = _behind_leading(messages)
            if judge_probe(template, place, request, messages).in_place:
                return (CALL_ID,)
    return ()


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
    "all system turns, wherever they stand, are joined into one first message{how}: each new one makes that "
    "longer, and everything after it is computed again"
)
_OMLX_WORDS: dict[Decision, str] = {
    "inline": "it stays where it is",
    "note": "it becomes a [System note] at the end of that user turn",
    "hoist": _HOIST.format(how=""),
}
_OMLX_ELSEWHERE = (
    "except before a user turn and after an assistant turn, where this server leaves none in place, whatever "
    "the template can: system turns then become notes in user turns, or are all joined into the first message"
)


def _omlx_consequence(at: Mapping[str, Decision]) -> str:
    places: dict[Decision, list[Placement]] = {}
    for place in PAIRS:
        places.setdefault(at[str(place)], []).append(place)
    if len(places) == 1:
        words = _OMLX_WORDS[next(iter(places))]
    else:
        words = "; ".join(f"{_in_words(found)} {_OMLX_WORDS[decision]}" for decision, found in places.items())
    return f"{words}, {_OMLX_ELSEWHERE}" if set(places) == {"inline"} else words


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


def _detecting(name: str, answer: Answer, matrix: Sequence[PlacementReport], how: str = "") -> ServerReport:
    """Report on a server that decides once for all placements; `how` it joins system turns otherwise."""
    decides: Decision = "inline" if answer.in_place else "hoist"
    consequence = _template_does(matrix) if answer.in_place else _HOIST.format(how=how)
    pairs = [str(place) for place in PAIRS]
    supported = dict.fromkeys(pairs, answer.in_place)
    report = ServerReport(name, supported, decides, dict.fromkeys(pairs, decides), answer.why, consequence)
    return _compared(report, matrix, everywhere=True)


#: Servers that pass system turns on to the template, and how a request fails where it raises.
PASSING = {
    "vllm:chat-completions": "HTTP 400",
    "llama.cpp": "HTTP 500",
    "mlx-lm": "HTTP 404",
    "lm-studio": "HTTP 500",
}


#: The policies of servers that are named otherwise here. The ones that ask the template do so on one route.
_POLICIES = {
    "omlx:pr-1991": "omlx:leading_shape=on",
    "vllm": "vllm:route=messages",
    "sglang": "sglang:route=messages",
    "vllm:chat-completions": "vllm:route=chat",
    "llama.cpp": "llama-cpp",
}


def _passing(name: str, failure: str, matrix: Sequence[PlacementReport]) -> ServerReport:
    """Report on a server that asks nothing: what happens is what the matrix says."""
    verdicts = {str(place): {row.verdict for row in matrix if row.pair == str(place)} for place in PAIRS}
    supported = {pair: seen == {"in-place"} for pair, seen in verdicts.items()}
    at: dict[str, Decision] = {
        pair: "raise" if "raises" in seen else "inline" for pair, seen in verdicts.items()
    }
    return ServerReport(
        name,
        supported,
        _worst(at.values()),
        at,
        "it asks nothing and passes all messages on to the template",
        _template_does(matrix, f" with {failure}"),
    )


_DOES: dict[Verdict, str] = {
    "raises": "the template raises an error, and the request fails{how}",
    "dropped": "the template leaves it out: the model never sees it",
    "moved": "the template writes it {where}, and all from there on is computed again",
    "duplicated": "the template writes it twice",
    "unstable": "the template changes what stands before it, which is computed again",
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
