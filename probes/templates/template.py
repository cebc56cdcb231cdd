"""ChatTemplate: a model's chat template, and the one way to render it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from ..conversation import Request
from ..errors import RenderError, RenderLimit
from .renderer import Budget, Task, renderer
from .rendering import REASONING_KEYS, Chunk, Job, Limits, Profile, PromptText, RenderTask
from .source import TemplateSource

#: Arguments of `apply_chat_template` that do not reach a template when a request has them among its kwargs.
_NOT_FOR_TEMPLATES = frozenset(
    """padding max_length return_assistant_tokens_mask return_dict return_tensors sanitize_control_tokens
    tokenize tokenizer_kwargs truncation""".split()
)
#: Names that no kwarg may have, since the call of a template takes them.
_TAKEN = frozenset({"chat_template", "conversation", "conversations", "messages", "self"})
#: What all renders of one template may take together beyond the usual, as a multiple of what one may take.
_MOST_SLOW = 1.5
#: Characters that all prompts of one template may have together that are much longer than what they are of.
_MOST_INFLATED = 6_000_000
#: Prompts that are kept, in case the same conversation is rendered again: so many, and so many characters,
#: or the last few of any length.
_MOST_KEPT = 2_000
_MOST_KEPT_CHARACTERS = 4_000_000
_LEAST_KEPT = 4

Outcome = PromptText | RenderError
Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A render that is asked for: the named template, the conversation, and a text to look for."""

    name: str
    job: Job
    text: str | None

    @property
    def task(self) -> Task:
        """What the worker is asked; with the length of the body, where that costs no second render."""
        body = self.job.add_generation_prompt and not self.job.continue_final_message
        return Task("prompt", self.job, (body, self.text))


class _Kept:
    """Prompts that were rendered lately: equal conversations are rendered once."""

    def __init__(self) -> None:
        self._outcomes: OrderedDict[Key, Outcome] = OrderedDict()
        self._characters = 0

    def get(self, key: Key) -> Outcome | None:
        """Return what was kept under a key."""
        return self._outcomes.get(key)

    def keep(self, key: Key, outcome: Outcome) -> None:
        """Keep an outcome, and let the oldest go where there are too many."""
        if key in self._outcomes:
            return
        self._outcomes[key] = outcome
        self._characters += _length(outcome)
        while len(self._outcomes) > _MOST_KEPT or (
            self._characters > _MOST_KEPT_CHARACTERS and len(self._outcomes) > _LEAST_KEPT
        ):
            self._characters -= _length(self._outcomes.popitem(last=False)[1])


def _length(outcome: Outcome) -> int:
    return len(outcome.text) if isinstance(outcome, PromptText) else 0


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
        self.limits = limits or Limits()
        self.sources = {name: TemplateSource(text, self.limits) for name, text in templates.items()}
        self.source = source
        self.path = path
        self.special_tokens = dict(special_tokens or {})
        self.now = now
        self.profile = profile
        self._budgets: dict[str, Budget] = {}
        self._exceeded: dict[str, RenderLimit] = {}
        self._kept = _Kept()

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
        return self._prompt(RenderTask(request, add_generation_prompt, profile)).text

    def render_many(self, tasks: Sequence[RenderTask]) -> list[PromptText | RenderError]:
        """Render several conversations at once, which costs less than one after the other.

        They are kept for a while, so that rendering one of them again costs nothing.

        Returns:
            For each its prompt, or what it raises: see `render`.
        """
        outcomes: list[Outcome | None] = [None] * len(tasks)
        asked: list[_Asked] = []
        places: list[int] = []
        for place, task in enumerate(tasks):
            try:
                name, job = self._request_job(task.request, task.add_generation_prompt, task.profile)
            except RenderError as error:
                outcomes[place] = error
            else:
                asked.append(_Asked(name, job, task.text))
                places.append(place)
        for place, outcome in zip(places, self._outcomes(asked), strict=True):
            outcomes[place] = outcome
        return [each for each in outcomes if each is not None]

    def _prompt(self, task: RenderTask) -> PromptText:
        (outcome,) = self.render_many([task])
        if isinstance(outcome, RenderError):
            raise outcome.with_traceback(None)
        return outcome

    def _outcomes(self, asked: Sequence[_Asked]) -> list[Outcome]:
        """Render what is not kept, all that uses the same template in one message."""
        outcomes: list[Outcome | None] = [None] * len(asked)
        places: dict[Key, list[int]] = {}
        for place, each in enumerate(asked):
            try:
                key = self._key(each, place)
            except RenderError as error:
                outcomes[place] = error
                continue
            outcomes[place] = self._known(key, each.job)
            if outcomes[place] is None:
                places.setdefault(key, []).append(place)
        for name in self.sources:
            keys = [key for key in places if key[0] == name]
            tasks = [asked[places[key][0]].task for key in keys]
            for key, found in zip(keys, self._bounded(name, tasks) if tasks else (), strict=True):
                outcome = found if isinstance(found, RenderError) else PromptText(*found)
                if key[-1] is None:
                    self._kept.keep(key, outcome)
                for place in places[key]:
                    outcomes[place] = outcome
        return [each for each in outcomes if each is not None]

    def _key(self, asked: _Asked, place: int) -> Key:
        """Return what tells a render from others; the clock is asked anew each time where it is printed."""
        timed = asked.job.now is None and self.sources[asked.name].prints_time
        return (asked.name, asked.text, renderer.key(asked.job), place if timed else None)

    def _known(self, key: Key, job: Job) -> Outcome | None:
        if key[-1] is not None:
            return None
        known = self._kept.get(key)
        if known is None and not job.add_generation_prompt and key[1] is None:
            name, text, wired, timed = key
            prompted = self._kept.get((name, text, (*wired[:3], True, *wired[4:]), timed))
            if isinstance(prompted, PromptText) and prompted.body is not None:
                return PromptText(prompted.text[: prompted.body])
        return known

    def _bounded(self, name: str, tasks: Sequence[Task]) -> list[Any]:
        """Have the worker do tasks of one template, while its budget lasts."""
        budget = self._budgets.get(name)
        if budget is None:
            budget = self._budgets[name] = Budget(self.limits.seconds * _MOST_SLOW, _MOST_INFLATED)
        source = self.sources[name]
        results = renderer.do(source.text, tasks, self.limits, budget)
        for result in results:
            if isinstance(result, RenderLimit):
                self._exceeded[name] = result
        if any(result is None for result in results):
            stopped = self._exceeded.get(name) or self._over_budget(budget)
            self._exceeded[name] = stopped
            results = [stopped if result is None else result for result in results]
        return results

    def _over_budget(self, budget: Budget) -> RenderLimit:
        if budget.seconds < 0:
            most = self.limits.seconds * _MOST_SLOW
            return RenderLimit(f"too slow: its renders took more than {most:g} s of CPU time together")
        return RenderLimit("too long: the prompts are many times as long as their conversations")

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
        (outcome,) = self._outcomes([_Asked(name, job, None)])
        if isinstance(outcome, RenderError):
            raise outcome.with_traceback(None)
        return outcome.text

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
        prompt = self._prompt(RenderTask(request, add_generation_prompt, profile, text))
        return prompt.text, prompt.line

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
        (found,) = self._bounded(name, [Task("chunk", job, (offset,))])
        if isinstance(found, RenderError):
            raise found
        if not found:
            raise IndexError(f"the prompt has no character {offset}")
        return Chunk(*found)

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
        return name, replace(job, lasting=True, profile=profile or job.profile)

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
                raise RenderError("ValueError", "a message cannot be continued after a generation prompt")
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


def _wrong_type(name: str, expected: str, value: Any) -> RenderError:
    return RenderError("TypeError", f"{name!r} must be {expected}, not {type(value).__name__}")
