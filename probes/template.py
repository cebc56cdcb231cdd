"""ChatTemplate: a model's chat template, and the one way to render it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

from jinja2 import Template, nodes

from .conversation import Request
from .errors import RenderError, RenderLimit
from .jinja import environment, undeclared_variables
from .rendering import Chunk, Job, Limits, Profile, as_render_error, chunk_at, compile_template, render
from .well_behaved import well_behaved

#: Arguments of `apply_chat_template` that do not reach a template when a request names them among its kwargs.
_NOT_FOR_TEMPLATES = frozenset(
    """padding max_length return_assistant_tokens_mask return_dict return_tensors sanitize_control_tokens tokenize
    tokenizer_kwargs truncation""".split()
)


class TemplateSource:
    """The source text of one template, parsed and compiled at most once, when first needed."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def tree(self) -> nodes.Template:
        """The syntax tree. Raises RenderError where the source is not valid Jinja."""
        try:
            return environment().parse(self.text)
        except Exception as error:
            raise as_render_error(error) from error

    @cached_property
    def undeclared(self) -> frozenset[str]:
        """The variables that the template takes from outside."""
        try:
            return undeclared_variables(self.tree)
        except Exception as error:
            raise as_render_error(error) from error

    @cached_property
    def well_behaved(self) -> bool:
        """Whether it may be rendered inside this process (well_behaved.py)."""
        try:
            return well_behaved(self.tree)
        except RecursionError:
            return False

    @cached_property
    def compiled(self) -> Template:
        """The compiled template, for well-behaved ones."""
        return compile_template(self.tree)

    @cached_property
    def sha256(self) -> str:
        """Hash of the source text, hexadecimal."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()


class ChatTemplate:
    """A model's chat template or named templates, with the special tokens that they may write.

    Args:
        templates: source texts by name; a single one is called `default`.
        source: what a person called it, for reports.
        special_tokens: `bos_token`, `eos_token` and so on.
        kwargs: chat-template kwargs laid over every request's own.
        now: the clock for requests that do not bring one; None for the local time.
        limits: bounds of a render.
        profile: what the template gets besides its messages (docs/rendering.md).
    """

    #: What some template objects declare to their server (docs/servers.md, section 1); a Jinja template does not.
    supports_mid_system_messages: bool | None = None
    relocate_mid_system_messages: Callable[..., Any] | None = None

    def __init__(
        self,
        templates: Mapping[str, str],
        *,
        source: str,
        special_tokens: Mapping[str, str] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        now: datetime | None = None,
        limits: Limits | None = None,
        profile: Profile = "transformers",
    ) -> None:
        self.sources = {name: TemplateSource(text) for name, text in templates.items()}
        self.source = source
        self.special_tokens = dict(special_tokens or {})
        self.kwargs = dict(kwargs or {})
        self.now = now
        self.limits = limits or Limits()
        self.profile = profile
        self._stopped: dict[str, RenderLimit] = {}

    @property
    def text(self) -> str:
        """The source text of the template that is used without tools."""
        return self.choose(None).text

    def choose(self, tools: Sequence[Mapping[str, Any]] | None) -> TemplateSource:
        """Return the template that a request gets: `tool_use` where tools are given, else `default`.

        Raises:
            RenderError: there are several templates and none of them is the default.
        """
        return self.sources[self._name(tools)]

    def render_request(self, request: Request, *, add_generation_prompt: bool = True) -> str:
        """Render a request as the server would, or without its generation prompt.

        Raises:
            RenderError: see `render`.
        """
        name, job = self._job(*self._arguments(request, add_generation_prompt))
        return self._render(name, job)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        now: datetime | None = None,
    ) -> str:
        """Render a conversation.

        Args:
            messages: OpenAI chat messages.
            tools: the tool list; None where the request has none.
            kwargs: chat-template kwargs; like in `apply_chat_template` they may replace the arguments below.
            add_generation_prompt: whether to end with the opening of an assistant turn.
            continue_final_message: whether to cut where the last message's content ends.
            now: the clock that the template shall see.

        Raises:
            RenderError: the template raised; RenderLimit where it took too much time, memory or output, in
                which case it is not tried again.
        """
        name, job = self._job(messages, tools, kwargs or {}, add_generation_prompt, continue_final_message, now)
        return self._render(name, job)

    def chunk_at(self, request: Request, offset: int, *, add_generation_prompt: bool = True) -> Chunk:
        """Find the chunk that covers a character of what `render_request` returns; see `rendering.chunk_at`."""
        name, job = self._job(*self._arguments(request, add_generation_prompt))
        source = self.sources[name]
        if source.well_behaved:
            return chunk_at(source.compiled, job, offset)
        from .isolation import child

        return child.chunk_at(source.text, job, offset, self.limits)

    def _arguments(self, request: Request, add_generation_prompt: bool) -> tuple[Any, ...]:
        messages = [message.data for message in request.messages]
        prompted = add_generation_prompt and not request.partial
        return messages, request.tools, request.kwargs, prompted, request.partial, request.now

    def _name(self, tools: Sequence[Mapping[str, Any]] | None) -> str:
        if tools is not None and "tool_use" in self.sources:
            return "tool_use"
        if "default" in self.sources:
            return "default"
        raise RenderError("ValueError", f"none of the named templates ({', '.join(sorted(self.sources))}) is default")

    def _job(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        kwargs: Mapping[str, Any],
        add_generation_prompt: bool,
        continue_final_message: bool,
        now: datetime | None,
    ) -> tuple[str, Job]:
        variables = {**kwargs, **self.kwargs}
        tools = variables.pop("tools", tools)
        add_generation_prompt = bool(variables.pop("add_generation_prompt", add_generation_prompt))
        continue_final_message = bool(variables.pop("continue_final_message", continue_final_message))
        for name in ("messages", "conversation", "chat_template"):
            if name in variables:
                raise RenderError("TypeError", f"{name!r} is not a chat-template kwarg")
        if not messages:
            raise RenderError("ValueError", "an empty conversation cannot be rendered")
        if continue_final_message and add_generation_prompt:
            raise RenderError("ValueError", "a message cannot be continued behind a generation prompt")
        return self._name(tools), Job(
            messages=messages,
            tools=None if tools is None else list(tools),
            variables=self.special_tokens
            | {name: value for name, value in variables.items() if name not in _NOT_FOR_TEMPLATES},
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            now=now or self.now,
            profile=self.profile,
        )

    def _render(self, name: str, job: Job) -> str:
        if name in self._stopped:
            raise self._stopped[name]
        source = self.sources[name]
        try:
            if source.well_behaved:
                return render(source.compiled, job, self.limits)
            from .isolation import child

            return child.render(source.text, job, self.limits)
        except RenderLimit as error:
            self._stopped[name] = error
            raise
