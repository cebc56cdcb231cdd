"""The merge of chat-template kwargs as oMLX does it, step by step, and what its retry drops.

From lowest to highest: the model settings' `chat_template_kwargs`; its `enable_thinking` and
`preserve_thinking`; the request's kwargs, into which `reasoning_effort` goes where they do not set it, but
for the forced keys; a thinking budget, and the detected default, where their key is still absent. Source:
`omlx/model_settings.py` and `omlx/api/utils.py` (docs/kwargs.md; docs/servers.md, section 1.12).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...conversation import Request
from ...errors import RenderError
from ...templates.template import ChatTemplate
from ...text import common_prefix

Layer = Literal[
    "settings.chat_template_kwargs",
    "settings.enable_thinking",
    "settings.preserve_thinking",
    "request.reasoning_effort",
    "request.chat_template_kwargs",
    "thinking_budget",
    "detected_default",
]
Outcome = Literal["set", "replaced", "dropped", "skipped"]
Engine = Literal["text", "vlm"]


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The fields of oMLX's model settings that the merge reads; None where they are not set."""

    chat_template_kwargs: Mapping[str, Any] | None = None
    enable_thinking: bool | None = None
    preserve_thinking: bool | None = None
    forced_ct_kwargs: tuple[str, ...] | None = None
    thinking_budget_enabled: bool | None = None
    thinking_budget_tokens: int | None = None
    cache_reasoning_output: bool | None = None


@dataclass(frozen=True, slots=True)
class MergeStep:
    """What one layer did with one key.

    Attributes:
        layer: where the value comes from.
        key: the chat-template kwarg.
        value: the value that the layer brought.
        outcome: `set` where the key was absent, `replaced` where it had a value, `dropped` where the settings
            force the key, `skipped` where the layer only fills gaps and the key had a value.
        was: the value before; None where there was none.
        why: one clause for people.
    """

    layer: Layer
    key: str
    value: Any
    outcome: Outcome
    was: Any
    why: str


@dataclass(frozen=True, slots=True)
class Merge:
    """The merged kwargs and the steps that led to them.

    Attributes:
        kwargs: what the template gets.
        steps: in the order in which they were done.
        dropped: the request's keys that were dropped because the settings force them.
    """

    kwargs: Mapping[str, Any]
    steps: tuple[MergeStep, ...] = ()
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KwargsRetry:
    """What oMLX renders after a TypeError: the same request with less.

    Attributes:
        engine: `text`, which also drops the tools, or `vlm`, which keeps them.
        dropped: what the model does not see, the merged kwargs by name and `tools`.
        chars: length of the prompt, None where the template raises again (counted).
        error: what it raises then.
        shared_chars: what it shares with the prompt without a culprit alone; None where there is none.
    """

    engine: Engine
    dropped: tuple[str, ...]
    chars: int | None
    error: str | None
    shared_chars: int | None


@dataclass(frozen=True, slots=True)
class MergedPrompt:
    """The prompt with the merged kwargs.

    Attributes:
        chars: its length, None where the template raised (counted).
        error: what the template raised.
        line: the line that raised.
        culprits: the merged kwargs of which it is enough to leave out one, and the template renders.
        chars_without_culprit: length of the prompt without the first of them alone, tools and all (counted).
        retries: what the server renders instead; empty where it renders nothing else.
    """

    chars: int | None
    error: str | None = None
    line: int | None = None
    culprits: tuple[str, ...] = ()
    chars_without_culprit: int | None = None
    retries: tuple[KwargsRetry, ...] = ()


def merge_kwargs(
    settings: ModelSettings,
    request_kwargs: Mapping[str, Any] | None = None,
    *,
    reasoning_effort: str | None = None,
    thinking_budget: int | None = None,
    preserve_thinking_default: bool | None = None,
) -> Merge:
    """Merge chat-template kwargs.

    Args:
        settings: the model's settings.
        request_kwargs: the request's `chat_template_kwargs`.
        reasoning_effort: the request's field of that name.
        thinking_budget: the request's budget in tokens; the settings' own counts where it is None.
        preserve_thinking_default: what was detected for the template (`detect_preserve_thinking`).
    """
    merged: dict[str, Any] = {}
    steps: list[MergeStep] = []

    def put(layer: Layer, key: str, value: Any, why: str) -> None:
        outcome: Outcome = "replaced" if key in merged else "set"
        steps.append(MergeStep(layer, key, value, outcome, merged.get(key), why))
        merged[key] = value

    def skip(layer: Layer, key: str, value: Any, outcome: Outcome, was: Any, why: str) -> None:
        steps.append(MergeStep(layer, key, value, outcome, was, why))

    for key, value in (settings.chat_template_kwargs or {}).items():
        put("settings.chat_template_kwargs", key, value, "the model's settings")
    if settings.enable_thinking is not None:
        put("settings.enable_thinking", "enable_thinking", settings.enable_thinking, "the model's own switch")
    if settings.preserve_thinking is not None:
        value = settings.preserve_thinking
        put("settings.preserve_thinking", "preserve_thinking", value, "the model's own switch")

    asked: dict[str, tuple[Layer, Any, str]] = {
        key: ("request.chat_template_kwargs", value, "the request asks for it")
        for key, value in (request_kwargs or {}).items()
    }
    if reasoning_effort is not None:
        layer: Layer = "request.reasoning_effort"
        if "reasoning_effort" in asked:
            was = asked["reasoning_effort"][1]
            why = "the request's chat_template_kwargs set it already"
            skip(layer, "reasoning_effort", reasoning_effort, "skipped", was, why)
        else:
            asked["reasoning_effort"] = (layer, reasoning_effort, "the request's kwargs do not set it")
    forced = frozenset(settings.forced_ct_kwargs or ())
    for key, (layer, value, why) in asked.items():
        if key in forced:
            skip(layer, key, value, "dropped", merged.get(key), "the settings force the key")
        else:
            put(layer, key, value, why)

    budget, owner = thinking_budget, "request"
    if budget is None and settings.thinking_budget_enabled and settings.thinking_budget_tokens:
        budget, owner = settings.thinking_budget_tokens, "model"
    if budget is not None:
        if "enable_thinking" in merged:
            why = "the key has a value"
            skip("thinking_budget", "enable_thinking", True, "skipped", merged["enable_thinking"], why)
        else:
            put("thinking_budget", "enable_thinking", True, f"the {owner} has a budget of {budget} tokens")
    if preserve_thinking_default is True:
        layer, key = "detected_default", "preserve_thinking"
        if key in merged:
            skip(layer, key, True, "skipped", merged[key], "the key has a value")
        elif merged.get("enable_thinking") is False:
            skip(layer, key, True, "skipped", None, "thinking is off")
        else:
            put(layer, key, True, "the template's text names it")
    dropped = tuple(step.key for step in steps if step.outcome == "dropped")
    return Merge(merged, tuple(steps), dropped)


def merged_prompt(template: ChatTemplate, request: Request, merge: Merge) -> MergedPrompt:
    """Render a request with its merged kwargs, and what the server renders after a TypeError.

    Args:
        template: the model's template.
        request: messages and tools; its own kwargs do not count.
        merge: the merged kwargs.
    """
    request = request.replace(kwargs=merge.kwargs)
    try:
        return MergedPrompt(len(template.render_request(request)))
    except RenderError as raised:
        error = raised
    if error.kind != "TypeError":
        return MergedPrompt(None, str(error), error.line)
    culprits, without = _culprits(template, request)
    engines: tuple[Engine, ...] = ("text", "vlm")
    retries = tuple(_retry(template, request, engine, without) for engine in engines)
    return MergedPrompt(
        None, str(error), error.line, culprits, None if without is None else len(without), retries
    )


def _culprits(template: ChatTemplate, request: Request) -> tuple[tuple[str, ...], str | None]:
    """Return the kwargs of which it is enough to leave out one, and the prompt without the first of them."""
    prompts: dict[str, str] = {}
    for key in request.kwargs:
        kwargs = {name: value for name, value in request.kwargs.items() if name != key}
        text, _ = _try(template, request.replace(kwargs=kwargs))
        if text is not None:
            prompts[key] = text
    return tuple(prompts), next(iter(prompts.values()), None)


def retried(request: Request, engine: Engine) -> Request:
    """Return what the server renders after a TypeError: no kwargs, and in its text engine no tools."""
    bare = request.replace(kwargs={})
    return bare.replace(tools=None) if engine == "text" else bare.replace(partial=False)


def _retry(template: ChatTemplate, request: Request, engine: Engine, without: str | None) -> KwargsRetry:
    text, error = _try(template, retried(request, engine))
    tools = ("tools",) if engine == "text" and request.tools and "tools" not in request.kwargs else ()
    shared = None if text is None or without is None else common_prefix(text, without)
    return KwargsRetry(engine, (*request.kwargs, *tools), None if text is None else len(text), error, shared)


def _try(template: ChatTemplate, request: Request) -> tuple[str | None, str | None]:
    try:
        return template.render_request(request), None
    except RenderError as error:
        return None, str(error)
