"""ChatTemplate: a model's chat template, and the one way to render it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from ..conversation import Request
from ..errors import RenderError, RenderLimit
from .renderer import RenderBudget, Task, WiredJob, renderer
from .rendering import REASONING_KEYS, Chunk, Job, Limits, Profile, PromptText, RenderTask, WrittenAt
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
class _AskedRender:
    """A render that is asked for.

    Attributes:
        name: the named template.
        job: the conversation.
        text: what to look for.
        key: what tells the conversation from others.
    """

    name: str
    job: Job
    text: str | None
    key: WiredJob

    @property
    def task(self) -> Task:
        """What the worker is asked; with the length of the body, where that costs no second render."""
        body = self.job.add_generation_prompt and not self.job.continue_final_message
        return Task("prompt", self.job, (body, self.text), self.key)


class _KeptOutcomes:
    """Prompts that were rendered lately: equal conversations are rendered once."""

    def __init__(self) -> None:
        self._outcomes: OrderedDict[Key, tuple[Outcome, str | None]] = OrderedDict()
        self._characters = 0

    def get(self, key: Key, text: str | None) -> Outcome | None:
        """Return what was kept under a key, where the place of `text` is known if that is asked for."""
        found = self._outcomes.get(key)
        return found[0] if found is not None and text in (None, found[1]) else None

    def keep(self, key: Key, outcome: Outcome, text: str | None) -> None:
        """Keep an outcome, and let the oldest go where there are too many."""
        earlier = self._outcomes.pop(key, None)
        self._outcomes[key] = (outcome, text)
        self._characters += _length(outcome) - (_length(earlier[0]) if earlier else 0)
        while len(self._outcomes) > _MOST_KEPT or (
            self._characters > _MOST_KEPT_CHARACTERS and len(self._outcomes) > _LEAST_KEPT
        ):
            self._characters -= _length(self._outcomes.popitem(last=False)[1][0])


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
        self._replacing: dict[str, TemplateSource] = {}
        self.source = source
        self.path = path
        self.special_tokens = dict(special_tokens or {})
        self.now = now
        self.profile = profile
        self._budgets: dict[str, RenderBudget] = {}
        self._exceeded: dict[str, RenderLimit] = {}
        self._kept = _KeptOutcomes()

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
        asked: list[_AskedRender] = []
        places: list[int] = []
        for place, task in enumerate(tasks):
            try:
                asked.append(self._asked(*self._request_job(task), task.text))
                places.append(place)
            except RenderError as error:
                outcomes[place] = error
        for place, outcome in zip(places, self._outcomes(asked), strict=True):
            outcomes[place] = outcome
        return [each for each in outcomes if each is not None]

    def render_ahead(self, conversations: Iterable[Mapping[str, Any]]) -> None:
        """Render at once what `render` is going to be asked for, one after the other.

        Args:
            conversations: the arguments of `render`, by name; what it raises, it raises then.
        """
        asked = []
        for arguments in conversations:
            try:
                asked.append(self._asked(*self._job(**arguments), None))
            except RenderError:
                continue
        self._outcomes(asked)

    def _prompt(self, task: RenderTask) -> PromptText:
        return self._one(self._asked(*self._request_job(task), task.text))

    def _one(self, asked: _AskedRender) -> PromptText:
        (outcome,) = self._outcomes([asked])
        if isinstance(outcome, RenderError):
            raise outcome.with_traceback(None)
        return outcome

    def _asked(self, name: str, job: Job, text: str | None) -> _AskedRender:
        return _AskedRender(name, job, text, renderer.wired(job))

    def _outcomes(self, asked: Sequence[_AskedRender]) -> list[Outcome]:
        """Render what is not kept, all that uses the same template in one message."""
        outcomes: list[Outcome | None] = [None] * len(asked)
        places: dict[str, dict[Key, list[int]]] = {}
        for place, each in enumerate(asked):
            # The clock is asked anew each time where it is printed.
            timed = each.job.now is None and self._source(each.name).prints_time
            key = (each.name, each.key.fields, place if timed else None)
            outcomes[place] = None if timed else self._known(key, each)
            if outcomes[place] is None:
                places.setdefault(each.name, {}).setdefault(key, []).append(place)
        for name, keys in places.items():
            tasks = [asked[found[0]].task for found in keys.values()]
            for (key, found), result in zip(keys.items(), self._bounded(name, tasks), strict=True):
                outcome = result if isinstance(result, RenderError) else _prompt_text(*result)
                if key[-1] is None:
                    self._kept.keep(key, outcome, asked[found[0]].text)
                for place in found:
                    outcomes[place] = outcome
        return [each for each in outcomes if each is not None]

    def _known(self, key: Key, asked: _AskedRender) -> Outcome | None:
        known = self._kept.get(key, asked.text)
        if known is None and asked.text is None and not asked.job.add_generation_prompt:
            prompted = self._kept.get((key[0], asked.key.prompted, key[2]), None)
            if isinstance(prompted, PromptText) and prompted.body is not None:
                return PromptText(prompted.text[: prompted.body])
        return known

    def _bounded(self, name: str, tasks: Sequence[Task]) -> list[Any]:
        """Have the worker do tasks of one template, while its budget lasts."""
        budget = self._budgets.get(name)
        if budget is None:
            budget = self._budgets[name] = RenderBudget(self.limits.seconds * _MOST_SLOW, _MOST_INFLATED)
        source = self._source(name)
        results = renderer.do(source.text, tasks, self.limits, budget)
        for result in results:
            if isinstance(result, RenderLimit):
                self._exceeded[name] = result
        if any(result is None for result in results):
            stopped = self._exceeded.get(name) or self._over_budget(budget)
            self._exceeded[name] = stopped
            results = [stopped if result is None else result for result in results]
        return results

    def _over_budget(self, budget: RenderBudget) -> RenderLimit:
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
            messages,
            tools=tools,
            kwargs=kwargs,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            now=now,
        )
        return self._one(self._asked(name, job, None)).text

    def render_bare(
        self, turns: Sequence[tuple[str, str]], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> str:
        """Render turns as servers do that test a template when they start, in a sandbox of their own.

        The sandbox has loop controls and nothing else that transformers adds: no special tokens, no
        `raise_exception`, `strftime_now` and generation tag, Jinja's own `tojson`, `dict` and `namespace`.
        Beside `messages` there is only `add_generation_prompt`, false.

        Args:
            turns: pairs of a role and a text.
            tools: which of several named templates is meant (`choose`); the template does not see them.

        Raises:
            RenderError: see `render`.
        """
        (outcome,) = self._bounded(self._name(tools), [Task("bare", None, (list(turns),))])
        if isinstance(outcome, RenderError):
            raise outcome.with_traceback(None)
        return str(outcome)

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
        return prompt.text, None if prompt.place is None else prompt.place.line

    def chunk_at(
        self,
        request: Request,
        offset: int,
        *,
        add_generation_prompt: bool = True,
        profile: Profile | None = None,
    ) -> Chunk:
        """Find the chunk that covers a character of what `render_request` returns (`rendering.chunk_at`)."""
        (found,) = self.chunks_at([(RenderTask(request, add_generation_prompt, profile), offset)])
        if isinstance(found, RenderError):
            raise found.with_traceback(None)
        if found is None:
            raise IndexError(f"the prompt has no character {offset}")
        return found

    def chunks_at(self, wanted: Sequence[tuple[RenderTask, int]]) -> list[Chunk | RenderError | None]:
        """Find the chunks that cover characters of several prompts, at once.

        Returns:
            For each the chunk, or what the template raises; None where the prompt is not that long.
        """
        found: list[Chunk | RenderError | None] = [None] * len(wanted)
        places: dict[str, list[tuple[int, Task]]] = {}
        for place, (task, offset) in enumerate(wanted):
            try:
                name, job = self._request_job(task)
                asked = Task("chunk", job, (offset,), renderer.wired(job))
                places.setdefault(name, []).append((place, asked))
            except RenderError as error:
                found[place] = error
        for name, tasks in places.items():
            results = self._bounded(name, [task for _, task in tasks])
            for (place, _), result in zip(tasks, results, strict=True):
                if isinstance(result, RenderError):
                    found[place] = result
                else:
                    found[place] = Chunk(*result) if result else None
        return found

    def render_slices(
        self, requests: Sequence[Request], start: int, end: int, *, profile: Profile | None = None
    ) -> list[tuple[int, str] | RenderError]:
        """Render several requests at once, and return a stretch of each prompt without sending all of it.

        Returns:
            For each the length of its prompt and the characters from `start` to `end`, or what it raises.
        """
        found: list[tuple[int, str] | RenderError] = [RenderError("ValueError", "not rendered")] * len(
            requests
        )
        places: dict[str, list[tuple[int, Task]]] = {}
        for place, request in enumerate(requests):
            try:
                name, job = self._request_job(RenderTask(request, True, profile))
                task = Task("slice", job, (start, end), renderer.wired(job))
                places.setdefault(name, []).append((place, task))
            except RenderError as error:
                found[place] = error
        for name, tasks in places.items():
            results = self._bounded(name, [task for _, task in tasks])
            for (place, _), result in zip(tasks, results, strict=True):
                found[place] = result
        return found

    def _request_job(self, task: RenderTask) -> tuple[str, Job]:
        request = task.request
        return self._job(
            [message.data for message in request.messages],
            tools=request.tools,
            kwargs=request.kwargs,
            add_generation_prompt=task.add_generation_prompt and not request.partial,
            continue_final_message=request.partial,
            now=request.now,
            profile=task.profile,
            lasting=True,
            replaced=request.template,
        )

    def _name(self, tools: Sequence[Mapping[str, Any]] | None) -> str:
        if tools is not None and "tool_use" in self.sources:
            return "tool_use"
        if "default" in self.sources:
            return "default"
        raise RenderError(
            "ValueError", f"none of the named templates ({', '.join(sorted(self.sources))}) is default"
        )

    def _replaced(self, text: str) -> str:
        """Return the name of a template that a server renders with instead of the model's: its own source."""
        if text not in self._replacing:
            self._replacing[text] = TemplateSource(text, self.limits)
        return text

    def _source(self, name: str) -> TemplateSource:
        return self._replacing[name] if name in self._replacing else self.sources[name]

    def _job(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool | str = False,
        now: datetime | None = None,
        profile: Profile | None = None,
        lasting: bool = False,
        replaced: str | None = None,
    ) -> tuple[str, Job]:
        variables = dict(kwargs or {})
        tools = variables.pop("tools", tools)
        add_generation_prompt = bool(variables.pop("add_generation_prompt", add_generation_prompt))
        continued = variables.pop("continue_final_message", continue_final_message)
        if not isinstance(continued, str | int | None):
            raise _wrong_type("continue_final_message", "true, false or the name of a field", continued)
        if not isinstance(tools, list | tuple | None):
            raise _wrong_type("tools", "a list", tools)
        for taken in _TAKEN & variables.keys() if variables else ():
            raise RenderError("TypeError", f"{taken!r} is not a chat-template kwarg")
        if not messages:
            raise RenderError("ValueError", "an empty conversation cannot be rendered")
        name = self._name(tools) if replaced is None else self._replaced(replaced)
        if continued:
            if add_generation_prompt:
                raise RenderError("ValueError", "a message cannot be continued after a generation prompt")
            field = continued if isinstance(continued, str) else "content"
            names = REASONING_KEYS if field in REASONING_KEYS else (field,)
            if not any(key in self._source(name).text for key in names):
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
            profile=profile or self.profile,
            lasting=lasting,
        )


def _prompt_text(text: str, body: int | None, place: tuple[int, int, int | None] | None) -> PromptText:
    return PromptText(text, body, None if place is None else WrittenAt(*place))


def _wrong_type(name: str, expected: str, value: Any) -> RenderError:
    return RenderError("TypeError", f"{name!r} must be {expected}, not {type(value).__name__}")
