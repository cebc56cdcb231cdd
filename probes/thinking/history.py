"""What a template does with the reasoning of earlier assistant turns, found out by rendering.

The conversations carry markers as reasoning; whether a marker stands in the prompt is all that counts. Two
kinds of assistant turn are looked at, because templates treat them differently: one that answers in a plain
chat, and one that calls a tool. Each is looked at while it is recent (nothing but tool results follows) and
later (behind the next user turn). docs/thinking.md defines the verdicts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, Literal

from ..conversation import Message, Request
from ..errors import RenderError
from ..templates.rendering import Profile, PromptText, RenderTask
from ..templates.template import ChatTemplate

Verdict = Literal["keeps", "tool-loop-only", "drops", "never", "not-evaluated"]
Form = Literal["reasoning_content", "reasoning", "thinking", "content-part", "inline"]

#: Every text is one made-up word, which a template cannot wrap or trim and will not write itself.
QUESTION, ANSWER, RESULT = "zqwhatzq", "zqthiszq", "zqdatazq"
FIRST, SECOND = "zqmusezq", "zqponderzq"
#: Strict templates take call ids of nine letters and digits only.
CALL_ID = "a1b2c3d4e"
TOOL_NAME = "look_up"
TOOL: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": TOOL_NAME,
        "description": "Look something up.",
        "parameters": {"type": "object", "properties": {"key": {"type": "string", "description": "What."}}},
    },
}
Tools = tuple[Mapping[str, Any], ...]

_USER = {"role": "user", "content": QUESTION}
_RESULT = {"role": "tool", "tool_call_id": CALL_ID, "name": TOOL_NAME, "content": RESULT}


@dataclass(frozen=True, slots=True)
class Kept:
    """Whether the reasoning of one kind of assistant turn stands in the prompt; None where that is not known.

    Attributes:
        recent: while nothing but tool results follows.
        later: behind the next user turn, of every such turn.
    """

    recent: bool | None
    later: bool | None


@dataclass(frozen=True, slots=True)
class History:
    """What becomes of reasoning that is given in one form, with one set of kwargs.

    Attributes:
        verdict: see docs/thinking.md.
        answer: of turns that answer in a plain chat.
        call: of turns that call a tool.
        closing: whether that of the answer which closes a tool loop stands behind the next user turn.
        reason: what could not be evaluated, and why; None where everything could.
        prompts: what was rendered, None where the template raised; for comparing.
    """

    verdict: Verdict
    answer: Kept
    call: Kept
    closing: bool | None
    reason: str | None = None
    prompts: tuple[str | None, ...] = field(default=(), repr=False, compare=False)

    def differs(self, other: History) -> bool:
        """Tell whether anything that both know is kept by one and not by the other."""
        pairs = zip(self._places, other._places, strict=True)
        return any(mine is not theirs for mine, theirs in pairs if mine is not None and theirs is not None)

    def loses(self, other: History) -> bool:
        """Tell whether anything that the other keeps is not kept here."""
        return any(mine is False and theirs for mine, theirs in zip(self._places, other._places, strict=True))

    @property
    def _places(self) -> tuple[bool | None, ...]:
        return (self.answer.recent, self.answer.later, self.call.recent, self.call.later, self.closing)


class HistoryProbe:
    """Renders the conversations of markers with one template.

    Args:
        template: the template.
        tools: given with every conversation; where None, a tool of our own is given with tool loops alone.
        now: the clock that the template shall see.
    """

    def __init__(
        self, template: ChatTemplate, tools: Tools | None = None, now: datetime | None = None
    ) -> None:
        self.template = template
        self.tools = tools
        self.now = now
        #: How often the template was rendered (counted).
        self.renders = 0
        self._string_arguments = False
        self._known: dict[tuple[Form, str, Profile | None], History] = {}

    def __call__(
        self,
        form: Form = "reasoning_content",
        kwargs: Mapping[str, Any] | None = None,
        profile: Profile | None = None,
    ) -> History:
        """Find out what becomes of reasoning; what was found out before is not rendered again."""
        key = (form, repr(sorted((kwargs or {}).items(), key=lambda item: item[0])), profile)
        if key not in self._known:
            self._known[key] = self._evaluate(form, kwargs or {}, profile)
        return self._known[key]

    def ahead(self, form: Form, several: Iterable[Mapping[str, Any]], profile: Profile | None = None) -> None:
        """Render at once what is going to be asked with one set of kwargs after the other."""
        asked = self._conversations(form)
        tasks = [
            view.task(each) for view in (_View(self, kwargs, profile) for kwargs in several) for each in asked
        ]
        self.template.render_many(tasks)

    def glance_ahead(self, several: Iterable[Mapping[str, Any]]) -> None:
        """Render at once what `glance` is going to be asked with one set of kwargs after the other."""
        asked = self._glances()
        tasks = [
            view.task(each) for view in (_View(self, kwargs, None) for kwargs in several) for each in asked
        ]
        self.template.render_many(tasks)

    def _evaluate(self, form: Form, kwargs: Mapping[str, Any], profile: Profile | None) -> History:
        view = _View(self, kwargs, profile)
        recent, later, loop, closed = view.render(self._conversations(form))
        self.renders += 4
        if loop.prompt is None:
            self.renders += 1
            (other,) = view.render([self._loop(form, not self._string_arguments)])
            if other.prompt is not None:
                loop, self._string_arguments = other, not self._string_arguments
                (closed,) = view.render([self._closed(form)])
        kept_answer = Kept(recent.has(FIRST), later.has(FIRST, SECOND))
        kept_call = Kept(loop.has(FIRST), closed.has(FIRST))
        outcomes = {
            "an answer": recent,
            "an answer after the next user turn": later,
            "a tool loop": loop,
            "a tool loop after the next user turn": closed,
        }
        problems: dict[str, list[str]] = {}
        for what, outcome in outcomes.items():
            if outcome.problem:
                problems.setdefault(outcome.problem, []).append(what)
        return History(
            verdict(kept_answer, kept_call),
            kept_answer,
            kept_call,
            closed.has(SECOND),
            "; ".join(_sentence(problem, whats, len(outcomes)) for problem, whats in problems.items())
            or None,
            tuple(outcome.prompt for outcome in outcomes.values()),
        )

    def _conversations(self, form: Form) -> list[_Conversation]:
        first, second = answer(form, FIRST), answer(form, SECOND)
        return [
            _Conversation((_USER, first), self.tools, ANSWER, prompted=False),
            _Conversation((_USER, first, _USER, second, _USER), self.tools, ANSWER),
            self._loop(form, self._string_arguments),
            self._closed(form),
        ]

    def _loop(self, form: Form, as_string: bool) -> _Conversation:
        """A tool loop."""
        return _Conversation((_USER, call(form, FIRST, as_string), _RESULT), self.tools or (TOOL,), RESULT)

    def _closed(self, form: Form) -> _Conversation:
        """A tool loop behind the next user turn."""
        calling = call(form, FIRST, self._string_arguments)
        messages = (_USER, calling, _RESULT, answer(form, SECOND), _USER)
        return _Conversation(messages, self.tools or (TOOL,), RESULT)

    def glance(self, kwargs: Mapping[str, Any]) -> tuple[bool | None, ...]:
        """Look at everything but the reasoning of a recent answer, with two renders instead of four."""
        mixed, closed = _View(self, kwargs, None).render(self._glances())
        self.renders += 2
        return (mixed.has(FIRST), mixed.has(SECOND), closed.has(FIRST), closed.has(SECOND))

    def _glances(self) -> list[_Conversation]:
        form: Form = "reasoning_content"
        first, second = answer(form, FIRST), answer(form, SECOND)
        calling = (call(form, text, self._string_arguments) for text in (SECOND, FIRST))
        open_loops = [(_USER, each, _RESULT) for each in calling]
        tools = self.tools or (TOOL,)
        return [
            _Conversation((_USER, first, *open_loops[0]), tools, RESULT),
            _Conversation((*open_loops[1], second, _USER), tools, RESULT),
        ]


@dataclass(frozen=True, slots=True)
class _Conversation:
    """A conversation of markers.

    Attributes:
        messages: its messages.
        tools: its tool list.
        text: what has to stand in the prompt for the prompt to tell anything.
        prompted: whether the prompt ends with a generation prompt.
    """

    messages: tuple[Mapping[str, Any], ...]
    tools: Tools | None
    text: str
    prompted: bool = True


@dataclass(frozen=True, slots=True)
class _View:
    """A template with kwargs and a profile."""

    probe: HistoryProbe
    kwargs: Mapping[str, Any]
    profile: Profile | None

    def task(self, conversation: _Conversation) -> RenderTask:
        """Return what is rendered."""
        messages = tuple(Message(message, index) for index, message in enumerate(conversation.messages))
        request = Request(messages, tools=conversation.tools, kwargs=self.kwargs, now=self.probe.now)
        return RenderTask(request, conversation.prompted, self.profile)

    def render(self, conversations: Sequence[_Conversation]) -> list[_Outcome]:
        """Render conversations."""
        prompts = self.probe.template.render_many([self.task(each) for each in conversations])
        return [_outcome(*each) for each in zip(conversations, prompts, strict=True)]


def _outcome(conversation: _Conversation, prompt: PromptText | RenderError) -> _Outcome:
    if isinstance(prompt, RenderError):
        return _Outcome(None, f"the template {prompt.clause}")
    if conversation.text in prompt.text:
        return _Outcome(prompt.text, None)
    what = "tool results" if conversation.text == RESULT else "assistant turns"
    return _Outcome(prompt.text, f"the template does not write {what}")


@dataclass(frozen=True, slots=True)
class _Outcome:
    """A prompt, and why it tells nothing where it tells nothing."""

    prompt: str | None
    problem: str | None

    def has(self, *markers: str) -> bool | None:
        """Tell whether all markers stand in the prompt; None where the prompt tells nothing."""
        if self.prompt is None or self.problem:
            return None
        return all(marker in self.prompt for marker in markers)


def _sentence(problem: str, where: Sequence[str], of: int) -> str:
    return f"{'every conversation' if len(where) == of else ' and '.join(where)}: {problem}"


@cache
def answer(form: Form, reasoning: str) -> dict[str, Any]:
    """Return an assistant turn that answers, with its reasoning in the given form."""
    return _with_reasoning({"role": "assistant", "content": ANSWER}, form, reasoning)


@cache
def call(form: Form, reasoning: str, as_string: bool = False) -> dict[str, Any]:
    """Return an assistant turn that calls a tool, its arguments an object or, as OpenAI has it, a string."""
    arguments = {"key": "value"}
    function = {"name": TOOL_NAME, "arguments": json.dumps(arguments) if as_string else arguments}
    calls = [{"id": CALL_ID, "type": "function", "function": function}]
    return _with_reasoning({"role": "assistant", "content": "", "tool_calls": calls}, form, reasoning)


def _with_reasoning(message: dict[str, Any], form: Form, reasoning: str) -> dict[str, Any]:
    content = message["content"]
    if form == "inline":
        return {**message, "content": f"<think>\n{reasoning}\n</think>\n\n{content}"}
    if form == "content-part":
        parts: list[dict[str, Any]] = [{"type": "thinking", "thinking": reasoning}]
        return {**message, "content": [*parts, {"type": "text", "text": content}] if content else parts}
    return {**message, form: reasoning}


def verdict(answer: Kept, call: Kept) -> Verdict:
    """Put what was found into one word; docs/thinking.md has the definitions."""
    kinds = (answer, call)
    if all(kind.later is None for kind in kinds):
        return "not-evaluated"
    lost = any(kind.recent and kind.later is False for kind in kinds)
    if any(kind.later for kind in kinds) and not lost:
        return "keeps"
    if call.recent:
        return "tool-loop-only"
    return "drops" if any(kind.recent or kind.later for kind in kinds) else "never"
