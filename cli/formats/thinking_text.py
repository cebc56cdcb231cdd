"""The report on reasoning, and the merge of kwargs, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.markup import escape

from ...probes.attribution.generation_prompt import Suffix
from ...probes.models.template_info import Failure
from ...probes.policies.servers.omlx_kwargs import MergedPrompt, MergeStep
from ...probes.text import settings_text, written
from ...probes.thinking.audit import MergeReport, ThinkingAudit
from ...probes.thinking.history import Verdict
from ...probes.thinking.report import ThinkingReport, VariableReport
from .findings_text import add_count_columns, counts, draw_findings
from .tables import titled

_WORDS: dict[Verdict, tuple[str, str, str]] = {
    "keeps": ("✓ kept", "green", "stays in the prompt after the next user turn"),
    "tool-loop-only": (
        "~ tool loop only",
        "yellow",
        "stays within a tool loop, removed after the next user turn",
    ),
    "drops": ("∅ dropped", "yellow", "written for the last turn only"),
    "never": ("- never written", "dim", "the model never sees it again"),
    "not-evaluated": ("? not tested", "dim", "the template does not write such a conversation"),
}
_SENTENCES: dict[Verdict, str] = {
    "keeps": "is kept",
    "tool-loop-only": "is kept within a tool loop only",
    "drops": "is dropped at the next user turn",
    "never": "is never written",
    "not-evaluated": "could not be tested",
}
_FORMS = {
    "reasoning_content": "reasoning_content",
    "reasoning": "reasoning",
    "thinking": "thinking",
    "content-part": "a content part of type thinking",
    "inline": "<think>…</think> in the content",
}
_PERSISTS = {
    True: "history has it before the same reply as well",
    False: "history does not have it before the same reply",
    None: "whether history has it could not be tested",
}
_LAYERS = {
    "settings.chat_template_kwargs": "settings: chat_template_kwargs",
    "settings.enable_thinking": "settings: enable_thinking",
    "settings.preserve_thinking": "settings: preserve_thinking",
    "request.reasoning_effort": "request: reasoning_effort",
    "request.chat_template_kwargs": "request: chat_template_kwargs",
    "thinking_budget": "thinking budget",
    "detected_default": "detected default",
}
_OUTCOMES = {"set": "", "replaced": "yellow", "dropped": "red", "skipped": "dim"}


def draw(audit: ThinkingAudit, console: Console) -> None:
    """Print the report on one template, or on a merge."""
    if audit.template is not None:
        kwargs = f", with {settings_text(audit.kwargs)}" if audit.kwargs else ""
        console.print(f"[bold]{escape(audit.template.source)}[/bold]{escape(kwargs)}", soft_wrap=True)
        console.print()
    if audit.merge is not None:
        _draw_merge(audit.merge, console)
    if audit.thinking is not None:
        _draw_report(audit.thinking, console)
        source = "" if audit.template is None else audit.template.source
        draw_findings(audit.findings, audit.ignored, source, console)


def draw_several(results: Sequence[ThinkingAudit | Failure], console: Console) -> None:
    """Print one row for each input."""
    table = titled("Reasoning of earlier turns is …", "template", "by default", "kept with")
    add_count_columns(table)
    for result in results:
        source = "" if result.template is None else escape(result.template.source)
        if isinstance(result, Failure):
            table.add_row(source, "[red]✗ not examined[/red]", escape(result.error))
        elif result.thinking is not None:
            knob = result.thinking.knob
            table.add_row(
                source,
                _verdict(result.thinking.history),
                escape(settings_text({knob.name: knob.value})) if knob else "",
                *counts(result.findings),
            )
    console.print(table)


def _draw_report(report: ThinkingReport, console: Console) -> None:
    table = titled("Reasoning of earlier turns", "given as", "is", "meaning", "without aliasing")
    verdicts: Mapping[str, Verdict] = {"reasoning_content": report.history, **report.fields}
    for form, verdict in verdicts.items():
        raw = report.raw.get(form, verdict)
        reason = report.not_evaluated.get("history" if form == "reasoning_content" else form, "")
        meaning = reason if verdict == "not-evaluated" else _WORDS[verdict][2]
        if form == "content-part" and report.parts_printed:
            meaning += ", but the list is printed in Python's or JSON's notation"
        table.add_row(
            _FORMS[form], _verdict(verdict), escape(meaning), "" if raw == verdict else _verdict(raw)
        )
    console.print(table)
    if report.as_given != report.history and report.as_given is not None:
        console.print(f"With the kwargs as given: {_verdict(report.as_given)}.")
    console.print()
    _draw_variables(report, console)
    for line in _servers(report):
        console.print(f"  {escape(line)}", soft_wrap=True)
    for line in _generation_prompt(report):
        console.print(f"  {escape(line)}", soft_wrap=True)
    console.print()


def _draw_variables(report: ThinkingReport, console: Console) -> None:
    if not report.variables:
        console.print("  No variable changes what is kept.")
        return
    table = titled("Variables that the template takes", "variable", "unset", "true", "false", "effect")
    for each in report.variables:
        table.add_row(
            each.name, _verdict(each.unset), _verdict(each.true), _verdict(each.false), escape(_meaning(each))
        )
    console.print(table)
    console.print()


def _meaning(variable: VariableReport) -> str:
    found = []
    if variable.keeps_with is not None:
        found.append(f"{settings_text({variable.name: variable.keeps_with})} keeps reasoning")
    elif variable.keeps_calls_with is not None:
        found.append(f"{settings_text({variable.name: variable.keeps_calls_with})} keeps that of tool calls")
    elif variable.only_with is not None:
        found.append(f"changes nothing unless {settings_text(variable.only_with)}")
    elif not variable.effect:
        found.append("changes nothing")
    found += [f'"{text}": {_WORDS[verdict][0]}' for text, verdict in variable.texts.items()]
    if variable.form != "reasoning_content":
        found.append(f"with {_FORMS[variable.form]}")
    if variable.line is not None:
        found.append(f"line {variable.line}")
    return ", ".join(found)


def _servers(report: ThinkingReport) -> Iterator[str]:
    omlx = report.omlx
    passes = "as reasoning_content" if omlx.native_reasoning else "between think tags"
    sets = f"sets {settings_text(omlx.sets)}, " if omlx.sets else ""
    caches = "caches" if omlx.output_cacheable else "does not cache"
    yield (
        f"oMLX {sets}passes reasoning {passes} and {caches} the output of replies that think: "
        f"reasoning {_SENTENCES[omlx.history]}."
    )
    if report.llama_cpp.sets:
        differs = "which changes the prompt" if report.llama_cpp.differs else "which changes nothing"
        yield (
            f"llama.cpp sets {settings_text(report.llama_cpp.sets)} by default, {differs}: "
            f"reasoning {_SENTENCES[report.llama_cpp.history]}."
        )


def _generation_prompt(report: ThinkingReport) -> Iterator[str]:
    prompt = report.generation_prompt
    yield _suffix("The generation prompt", Suffix(prompt.text, prompt.persists))
    for state, suffix in ((True, prompt.on), (False, prompt.off)):
        if suffix is not None and prompt.switch is not None:
            yield _suffix(f"  with {settings_text({prompt.switch: state})} it", suffix)


def _suffix(subject: str, suffix: Suffix) -> str:
    if suffix.text is None:
        return f"{subject} cannot be distinguished from the rest of the prompt."
    if not suffix.text:
        return f"{subject} is empty."
    return f"{subject} is {suffix.text!r}; {_PERSISTS[suffix.persists]}."


def _draw_merge(merge: MergeReport, console: Console) -> None:
    table = titled("Merge of chat-template kwargs, in oMLX's order", "layer", "key", "value", "is", "why")
    for step in merge.steps:
        table.add_row(*_step(step))
    if merge.steps:
        console.print(table)
    else:
        console.print("No layer sets a chat-template kwarg.")
    console.print(f"The template gets {escape(settings_text(merge.kwargs) or 'no kwargs')}.", soft_wrap=True)
    if merge.output_cacheable is not None:
        caches = "is cached" if merge.output_cacheable else "is not cached"
        console.print(f"The output of a reply that thinks {caches}.")
    if merge.prompt is not None:
        for line in _prompt(merge.prompt):
            console.print(escape(line), soft_wrap=True)
    for note in merge.notes:
        console.print(escape(f"Note: {note}."), style="dim", soft_wrap=True)
    console.print()


def _step(step: MergeStep) -> Iterator[str]:
    colour = _OUTCOMES[step.outcome]
    was = f" (was {written(step.was)})" if step.outcome == "replaced" else ""
    yield _LAYERS[step.layer]
    yield escape(step.key)
    yield escape(written(step.value))
    yield f"[{colour}]{step.outcome}[/{colour}]{escape(was)}" if colour else step.outcome
    yield escape(step.why)


def _prompt(prompt: MergedPrompt) -> Iterator[str]:
    if prompt.error is None:
        yield f"The prompt has {prompt.chars:,} characters."
        return
    where = f" (line {prompt.line})" if prompt.line else ""
    yield f"The template raises {prompt.error}{where}."
    if prompt.culprits:
        yield f"Without {' or '.join(prompt.culprits)} it has {prompt.chars_without_culprit:,} characters."
    for retry in prompt.retries:
        drops = (
            f"drops {', '.join(retry.dropped)} without an error" if retry.dropped else "has nothing to drop"
        )
        shared = "" if retry.shared_chars is None else f", of which that prompt shares {retry.shared_chars:,}"
        result = (
            f"raises {retry.error}" if retry.chars is None else f"renders {retry.chars:,} characters{shared}"
        )
        yield f"oMLX's {retry.engine} engine {drops} and {result}."


def _verdict(verdict: Verdict) -> str:
    words, colour, _ = _WORDS[verdict]
    return f"[{colour}]{words}[/{colour}]"
