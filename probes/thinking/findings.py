"""The findings of the report on reasoning. The rules are explained in docs/findings.md."""

from __future__ import annotations

from collections.abc import Iterator

from ..findings import Finding, finding
from ..policies.servers.llama_cpp import reasoning_variables
from ..policies.servers.omlx_reasoning import DETECTED_NAME
from ..text import settings_text, written
from .report import ThinkingReport, VariableReport


def thinking_findings(report: ThinkingReport) -> tuple[Finding, ...]:
    """Return the findings about a template's reasoning, in the order of the report."""
    return tuple((*_mentions(report), *_knob(report), *_stripped(report), *_generation_prompt(report)))


def _mentions(report: ThinkingReport) -> Iterator[Finding]:
    for variable in report.variables:
        if not variable.known or variable.effect:
            continue
        message = f"the template names {variable.name}, but it changes no prompt"
        if variable.only_with is not None:
            yield finding(
                "thinking-mention-without-effect",
                f"{message} unless {settings_text(variable.only_with, ' and ')}",
                severity="note",
                line=variable.line,
            )
            continue
        if variable.name == DETECTED_NAME and report.omlx_default:
            message += ", and oMLX concludes from the name alone that history keeps reasoning"
        yield finding("thinking-mention-without-effect", message, line=variable.line)


def _knob(report: ThinkingReport) -> Iterator[Finding]:
    knob = report.knob
    if knob is None or knob.name == DETECTED_NAME:
        return
    variable = next(each for each in report.variables if each.name == knob.name)
    if variable.unset == "keeps" or report.omlx_default:
        return
    value = written(knob.value)
    missed = "oMLX" if reasoning_variables(True).get(knob.name) is knob.value else "oMLX and llama.cpp"
    yield finding(
        "thinking-knob-missed",
        f"{knob.name}={value} keeps reasoning in history, but {missed} will not set it",
        line=variable.line,
        help=f"Set {knob.name}={value} among the chat-template kwargs",
    )


def _stripped(report: ThinkingReport) -> Iterator[Finding]:
    if report.knob is not None or report.history not in ("tool-loop-only", "drops"):
        return
    where = "inside the tool loop only" if report.history == "tool-loop-only" else "of the last turn only"
    message = (
        f"the template writes reasoning {where}, and no variable by itself keeps it after the next user turn"
    )
    calls = _keeps_calls(report)
    if calls is not None:
        value = written(calls.keeps_calls_with)
        message += f"; {calls.name}={value} keeps that of turns which call a tool"
    elif report.places.call.later:
        message += "; that of turns which call a tool is kept where the request has tools"
    yield finding("history-stripped-without-knob", message)


def _keeps_calls(report: ThinkingReport) -> VariableReport | None:
    return next((each for each in report.variables if each.keeps_calls_with is not None), None)


def _generation_prompt(report: ThinkingReport) -> Iterator[Finding]:
    prompt = report.generation_prompt
    if prompt.text and prompt.persists is False:
        yield finding(
            "generation-prompt-not-in-history",
            f"the generation prompt {prompt.text!r} is not in front of the same reply in history",
        )
