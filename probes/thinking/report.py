"""The report on reasoning: values whose field names are the JSON names, as docs/thinking.md explains them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..attribution.generation_prompt import GenerationPrompt
from .history import Form, Kept, Verdict

#: Variables of known templates that decide whether history keeps reasoning; those that servers set first.
HISTORY_VARIABLES = (
    "preserve_thinking",
    "clear_thinking",
    "drop_thinking",
    "truncate_history_thinking",
    "keep_past_thinking",
    "preserved_thinking",
)


@dataclass(frozen=True, slots=True)
class VariableReport:
    """What a variable does to the reasoning in history.

    Attributes:
        name: the chat-template kwarg.
        effect: whether any prompt changes with it.
        unset: the verdict without it.
        true: with it true.
        false: with it false.
        keeps_with: the value with which history keeps reasoning where it would not with every value.
        form: how the reasoning was given: as `reasoning_content`, or in the form in which alone the variable
            changes what is kept.
        known: whether it is one of `HISTORY_VARIABLES`; others are listed where they change what is kept.
        changes: for each value, written as JSON or text, whether a prompt differs from the one without it.
        texts: the verdicts for texts that the template compares it with.
        keeps_calls_with: the value that keeps the reasoning of turns that call a tool behind the next user
            turn, where it is lost without it and no value keeps all.
        only_with: other kwargs with which alone it changes anything, where it has no effect by itself.
        line: line of the template that first names it.
        reason: what could not be evaluated, and why.
    """

    name: str
    effect: bool
    unset: Verdict
    true: Verdict
    false: Verdict
    keeps_with: bool | str | None
    form: Form
    known: bool
    changes: Mapping[str, bool]
    texts: Mapping[str, Verdict]
    keeps_calls_with: bool | str | None
    only_with: Mapping[str, bool] | None
    line: int | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Knob:
    """A variable and the value with which history keeps reasoning."""

    name: str
    value: bool | str


@dataclass(frozen=True, slots=True)
class Places:
    """What stands behind the verdict on history: see `reasoning_history.History`."""

    answer: Kept
    call: Kept
    closing: bool | None


@dataclass(frozen=True, slots=True)
class LlamaCppReasoning:
    """What llama.cpp's defaults do.

    Attributes:
        sets: those of its four defaults that the template names.
        history: the verdict with them.
        differs: whether a prompt differs from what transformers renders without kwargs.
    """

    sets: Mapping[str, bool]
    history: Verdict
    differs: bool


@dataclass(frozen=True, slots=True)
class OmlxReasoning:
    """What oMLX switches on.

    Attributes:
        sets: the chat-template kwargs that it adds.
        native_reasoning: whether it hands reasoning over as `reasoning_content`, else between think tags.
        output_cacheable: whether it caches the output of a reply that thinks, by default.
        history: the verdict on what it then hands over.
    """

    sets: Mapping[str, bool]
    native_reasoning: bool
    output_cacheable: bool
    history: Verdict


@dataclass(frozen=True, slots=True)
class ThinkingReport:
    """All that is found about one template; only `omlx_default` is guessed, as that server guesses it.

    Attributes:
        mentions: names of history-reasoning variables that stand in the template's text.
        omlx_default: what oMLX's substring test concludes: True or None.
        variables: those that are mentioned, and others that change what is kept.
        history: the verdict with no history-reasoning variable set, reasoning given as `reasoning_content`.
        fields: the same for reasoning given in other ways.
        knob: the variable that keeps history, if any does.
        generation_prompt: with the kwargs as given.
        places: what stands behind `history`.
        as_given: the verdict with the kwargs as given, where they set a history-reasoning variable.
        raw: the verdicts without transformers' aliasing of the three keys (docs/rendering.md).
        llama_cpp: what llama.cpp's defaults change.
        omlx: what oMLX switches on.
        parts_printed: whether a content list with a part of type `thinking` comes out in a list's notation,
            so that the verdict on it is about text that no model was trained on.
        not_evaluated: for `history` and each of `fields`, what could not be evaluated, and why.
        renders: how often the template was rendered for history (counted).
    """

    mentions: tuple[str, ...]
    omlx_default: bool | None
    variables: tuple[VariableReport, ...]
    history: Verdict
    fields: Mapping[str, Verdict]
    knob: Knob | None
    generation_prompt: GenerationPrompt
    places: Places
    as_given: Verdict | None
    raw: Mapping[str, Verdict]
    llama_cpp: LlamaCppReasoning
    omlx: OmlxReasoning
    parts_printed: bool = False
    not_evaluated: Mapping[str, str] = field(default_factory=dict)
    renders: int = 0
