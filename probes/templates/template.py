"""ChatTemplate: a model's chat template, and the one way to render it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from ..conversation import Request, written_alike
from ..errors import RenderError, RenderLimit
from . import bounds
from .rendering import (
    REASONING_KEYS,
    Chunk,
    Job,
    Limits,
    Profile,
    chunk_at,
    render,
    render_and_locate,
    render_with_body,
)
from .source import TemplateSource

#: Arguments of `apply_chat_template` that do not reach a template when a request has them among its kwargs.
_NOT_FOR_TEMPLATES = frozenset(
    """padding max_length return_assistant_tokens_mask return_dict return_tensors sanitize_control_tokens
    tokenize tokenizer_kwargs truncation""".split()
)
#: Names that no kwarg may have, since the call of a template takes them.
_TAKEN = frozenset({"chat_template", "conversation", "conversations", "messages", "self"})
#: Seconds from which a render counts as slow; a prompt of 200,000 tokens takes a tenth of one.
_SLOW_SECONDS = 1.0
#: Seconds that all slow renders of one template may take together.
_MOST_SLOW_SECONDS = 15.0
#: Characters from which a prompt is compared with its conversation; it may be so many times as long.
_LONG_PROMPT = 1_000_000
_MOST_TIMES_AS_LONG = 10
#: Characters that all longer prompts of one template may have together.
_MOST_INFLATED = 6_000_000
#: Prompts that are kept, in case the same conversation is rendered again.
_REMEMBERED = 4

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _RememberedPrompt:
    """A prompt that was rendered lately: equal conversations are rendered once.

    Attributes:
        name: of the template.
        job: what it got.
        text: the prompt.
        body: its length without the generation prompt; None where it is not known.
    """

    name: str
    job: Job
    text: str
    body: int | None

    def is_of(self, name: str, job: Job) -> bool:
        """Tell whether a job is the same as this one, as written."""
        own = self.job
        return (
            name == self.name
            and job.add_generation_prompt == own.add_generation_prompt
            and job.continue_final_message == own.continue_final_message
            and (job.profile, job.now) == (own.profile, own.now)
            and written_alike(job.tools, own.tools)
            and written_alike(job.variables, own.variables)
            and written_alike(job.messages, own.messages)
        )


def _asking(job: Job) -> Job:
    return replace(job, add_generation_prompt=True)


class ChatTemplate:
    """A model's chat template or named templates, with the special tokens that they may write.

    Args:
        templates: source texts by name; a single one is called `default`.
        source: what a person called it, for reports.
        path: the model directory or the file that it came from; None where there is none here.
        special_tokens: `bos_token`, `eos_token` and so on.
        now: the clock for requests that do not bring one; None for the local time.
        limits: bounds of a render.
        profile: what the template gets besides its messages (docs/rendering.md).
    """

    #: What some template objects declare to servers (docs/servers.md, section 1). Jinja templates do not.
    supports_mid_system_messages: bool | None = None
    relocate_mid_system_messages: Callable[..., Any] | None = None

    def __init__(
        self,
        templates: Mapping[str, str],
        *,
        source: str,
        path: Path | None = None,
        special_tokens: Mapping[str, str] | None = None,
        now: datetime | None = None,
        limits: Limits | None = None,
        profile: Profile = "transformers",
    ) -> None:
        self.sources = {name: TemplateSource(text) for name, text in templates.items()}
        self.source = source
        self.path = path
        self.special_tokens = dict(special_tokens or {})
        self.now = now
        self.limits = limits or Limits()
        self.profile = profile
        self._stopped: dict[str, RenderLimit] = {}
        self._slow_seconds = 0.0
        self._inflated = 0
        self._remembered: deque[_RememberedPrompt] = deque(maxlen=_REMEMBERED)

    @property
    def text(self) -> str:
        """The source text of the template that is used without tools."""
        return self.choose(None).text

    @cached_property
    def sees_tools(self) -> bool:
        """Whether a prompt may depend on the tool list; not where the one template never names it."""
        return len(self.sources) > 1 or "tools" in self.text

    def choose(self, tools: Sequence[Mapping[str, Any]] | None) -> TemplateSource:
        """Return the template that a request gets: `tool_use` where tools are given, else `default`.

        Raises:
            RenderError: there are several templates and none of them is the default.
        """
        return self.sources[self._name(tools)]

    def render_request(
        self, request: Request, *, add_generation_prompt: bool = True, profile: Profile | None = None
    ) -> str:
        """Render a request in OpenAI chat form, or render it without its generation prompt.

        Args:
            request: what the template sees.
            add_generation_prompt: whether to end with the opening of an assistant turn, as servers do.
            profile: replaces the template's own profile.

        Raises:
            RenderError: see `render`.
        """
        name, job = self._request_job(request, add_generation_prompt, profile)
        if job.now is None and self.sources[name].prints_time:
            return self._render(name, job)
        for each in self._remembered:
            if each.body is not None and not job.add_generation_prompt and each.is_of(name, _asking(job)):
                return each.text[: each.body]
            if each.is_of(name, job):
                return each.text
        text, body = self._render_with_body(name, job)
        self._remembered.append(_RememberedPrompt(name, job, text, body))
        return text

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool | str = False,
        now: datetime | None = None,
    ) -> str:
        """Render a conversation.

        Args:
            messages: OpenAI chat messages.
            tools: the tool list; None where the request has none.
            kwargs: chat-template kwargs; like in `apply_chat_template` they may replace the arguments below.
            add_generation_prompt: whether to end with the opening of an assistant turn.
            continue_final_message: whether to cut where the last message's content, or the field of this
                name, ends.
            now: the clock that the template shall see.

        Raises:
            RenderError: the template raised, or an argument has the wrong type; RenderLimit where it took
                too much time, memory or output, in which case it is not tried again.
        """
        name, job = self._job(
            messages, tools, kwargs or {}, add_generation_prompt, continue_final_message, now
        )
        return self._render(name, job)

    def render_and_locate(
        self,
        request: Request,
        text: str | None,
        *,
        add_generation_prompt: bool = True,
        profile: Profile | None = None,
    ) -> tuple[str, int | None]:
        """Render a request as `render_request`, and find the line that first writes a text.

        Costs no second render, as `chunk_at` would. The line is None where no single chunk holds the text,
        and where there is none to look for.

        Raises:
            RenderError: see `render`.
        """
        name, job = self._request_job(request, add_generation_prompt, profile)
        source = self.sources[name]

        def in_child(spent: float) -> tuple[str, int | None]:
            from .worker_process import child

            prompt = child.render(source.text, job, self.limits, spent)
            self._note_length(name, job, prompt)
            if text is None or (offset := prompt.find(text)) < 0:
                return prompt, None
            chunk = child.chunk_at(source.text, job, offset, self.limits, spent)
            return prompt, chunk.line if offset + len(text) <= chunk.end else None

        most = self.limits.characters
        return self._bounded(name, lambda: render_and_locate(source.compiled, job, most, text), in_child)

    def chunk_at(
        self,
        request: Request,
        offset: int,
        *,
        add_generation_prompt: bool = True,
        profile: Profile | None = None,
    ) -> Chunk:
        """Find the chunk that covers a character of what `render_request` returns (`rendering.chunk_at`)."""
        name, job = self._request_job(request, add_generation_prompt, profile)
        source = self.sources[name]

        def in_child(spent: float) -> Chunk:
            from .worker_process import child

            return child.chunk_at(source.text, job, offset, self.limits, spent)

        return self._bounded(name, lambda: chunk_at(source.compiled, job, offset), in_child)

    def _request_job(
        self, request: Request, add_generation_prompt: bool, profile: Profile | None
    ) -> tuple[str, Job]:
        name, job = self._job(
            [message.data for message in request.messages],
            request.tools,
            request.kwargs,
            add_generation_prompt and not request.partial,
            request.partial,
            request.now,
        )
        return name, job if profile is None else replace(job, profile=profile)

    def _name(self, tools: Sequence[Mapping[str, Any]] | None) -> str:
        if tools is not None and "tool_use" in self.sources:
            return "tool_use"
        if "default" in self.sources:
            return "default"
        raise RenderError(
            "ValueError", f"none of the named templates ({', '.join(sorted(self.sources))}) is default"
        )

    def _job(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        kwargs: Mapping[str, Any],
        add_generation_prompt: bool,
        continue_final_message: bool | str,
        now: datetime | None,
    ) -> tuple[str, Job]:
        variables = dict(kwargs)
        tools = variables.pop("tools", tools)
        add_generation_prompt = bool(variables.pop("add_generation_prompt", add_generation_prompt))
        continued = variables.pop("continue_final_message", continue_final_message)
        if not isinstance(continued, str | int | None):
            raise _wrong_type("continue_final_message", "true, false or the name of a field", continued)
        if not isinstance(tools, list | tuple | None):
            raise _wrong_type("tools", "a list", tools)
        for taken in _TAKEN & variables.keys():
            raise RenderError("TypeError", f"{taken!r} is not a chat-template kwarg")
        if not messages:
            raise RenderError("ValueError", "an empty conversation cannot be rendered")
        name = self._name(tools)
        if continued:
            if add_generation_prompt:
                raise RenderError("ValueError", "a message cannot be continued behind a generation prompt")
            field = continued if isinstance(continued, str) else "content"
            names = REASONING_KEYS if field in REASONING_KEYS else (field,)
            if not any(key in self.sources[name].text for key in names):
                raise RenderError(
                    "ValueError", f"the template does not read {field!r}, which is to be continued"
                )
        return name, Job(
            messages=messages,
            tools=None if tools is None else list(tools),
            variables=self.special_tokens
            | {name: value for name, value in variables.items() if name not in _NOT_FOR_TEMPLATES},
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continued if isinstance(continued, str) else bool(continued),
            now=now or self.now,
            profile=self.profile,
        )

    def _render(self, name: str, job: Job) -> str:
        source = self.sources[name]

        def in_child(spent: float) -> str:
            from .worker_process import child

            prompt = child.render(source.text, job, self.limits, spent)
            self._note_length(name, job, prompt)
            return prompt

        return self._bounded(name, lambda: render(source.compiled, job, self.limits.characters), in_child)

    def _render_with_body(self, name: str, job: Job) -> tuple[str, int | None]:
        """Render, and tell the length without the generation prompt where that costs no second render."""
        source = self.sources[name]
        if not (job.add_generation_prompt and source.generation_prompt_ends):
            return self._render(name, job), None

        def in_child(spent: float) -> tuple[str, int | None]:
            from .worker_process import child

            prompt = child.render(source.text, job, self.limits, spent)
            self._note_length(name, job, prompt)
            return prompt, None

        most = self.limits.characters
        return self._bounded(name, lambda: render_with_body(source.compiled, job, most), in_child)

    def _bounded(self, name: str, here: Callable[[], Result], in_child: Callable[[float], Result]) -> Result:
        """Run a template in this process while its steps are bounded, else in the child."""
        if name in self._stopped:
            raise self._stopped[name]
        source = self.sources[name]
        started = time.monotonic()
        try:
            if source.well_behaved and bounds.can_run():
                try:
                    return bounds.run(here, self.limits.seconds)
                except bounds.Unbounded:
                    source.well_behaved = False
            return in_child(time.monotonic() - started)
        except RenderLimit as error:
            self._stopped[name] = error
            raise
        finally:
            self._note_time(name, time.monotonic() - started)

    def _note_time(self, name: str, seconds: float) -> None:
        """Stop a template whose renders, each within its bounds, would make a run last for minutes."""
        if seconds > _SLOW_SECONDS:
            self._slow_seconds += seconds
            if self._slow_seconds > _MOST_SLOW_SECONDS:
                text = f"its slow renders took more than {_MOST_SLOW_SECONDS:g} s together"
                self._stopped.setdefault(name, RenderLimit(f"the template is too slow: {text}"))

    def _note_length(self, name: str, job: Job, prompt: str) -> None:
        """Stop a template that writes far more than the conversation holds: all of it has to be read."""
        if len(prompt) < _LONG_PROMPT:
            return
        given = sum(len(str(each)) for each in (*job.messages, *(job.tools or ()), job.variables))
        if len(prompt) > _MOST_TIMES_AS_LONG * given:
            self._inflated += len(prompt)
            if self._inflated > _MOST_INFLATED:
                text = f"more than {_MOST_TIMES_AS_LONG} times what the conversation holds, several times"
                self._stopped.setdefault(name, RenderLimit(f"the template writes too much: {text}"))


def _wrong_type(name: str, expected: str, value: Any) -> RenderError:
    return RenderError("TypeError", f"{name!r} must be {expected}, not {type(value).__name__}")
