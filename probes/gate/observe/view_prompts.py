"""The prompts of the gate's conversations with one template: rendered many at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...conversation import Message, Request
from ...errors import RenderError
from ...templates.rendering import Profile, RenderTask
from ...templates.template import ChatTemplate
from ...text import settings_text
from ..subject import Subject
from .prompts import PromptOutline, TurnRenders, Turns
from .shapes import SHAPES, Shape, words

#: The variant of messages passed on as given.
RAW = "raw"
#: A switch of a template and a value for it.
Switched = tuple[str, bool | str]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The renders of one conversation in one way: what it is called, its requests, with what."""

    subject: Subject
    requests: tuple[Request, ...]
    profile: Profile = "transformers"
    bodies: bool = True


def view_prompts(
    template: ChatTemplate, variants: Sequence[Switched], kwargs: Mapping[str, Any], now: datetime
) -> dict[Subject, tuple[PromptOutline, ...]]:
    """Return the prompts of every conversation.

    Every request is rendered the usual way; with a switch, and with messages passed on as given, the last
    one of a conversation.
    """
    wanted = list(_wanted(variants, kwargs, now))
    prompts = iter(_rendered(template, wanted, True))
    # Behind the prompts, for most bodies are known from these.
    bodies = iter(_rendered(template, [each for each in wanted if each.bodies], False))
    found = {}
    for each in wanted:
        turns = Turns(message_words)
        found[each.subject] = tuple(
            turns.outline(TurnRenders(request, next(prompts), next(bodies) if each.bodies else None))
            for request in each.requests
        )
    return found


def _rendered(
    template: ChatTemplate, wanted: Sequence[_Wanted], add_generation_prompt: bool
) -> Iterator[str | RenderError]:
    """Yield the prompts of all requests, or what the template raised, in order; rendered at once."""
    tasks = [
        RenderTask(request, add_generation_prompt, each.profile)
        for each in wanted
        for request in each.requests
    ]
    for outcome in template.render_many(tasks):
        yield outcome if isinstance(outcome, RenderError) else outcome.text


def _wanted(variants: Sequence[Switched], kwargs: Mapping[str, Any], now: datetime) -> Iterator[_Wanted]:
    for shape in SHAPES:
        yield _Wanted(shape.subject(), tuple(given(request, kwargs, now) for request in shape.requests))
        yield _Wanted(shape.subject(RAW), (_last(shape, kwargs, now),), "raw", bodies=False)
    for name, value in variants:
        for shape in SHAPES:
            if shape.with_switches:
                request = _last(shape, {**kwargs, name: value}, now)
                yield _Wanted(shape.subject(settings_text({name: value})), (request,))


def _last(shape: Shape, kwargs: Mapping[str, Any], now: datetime) -> Request:
    return given(shape.requests[-1], kwargs, now)


def given(request: Request, kwargs: Mapping[str, Any], now: datetime) -> Request:
    """Return a request with kwargs over its own, and a clock."""
    return request.replace(kwargs={**request.kwargs, **kwargs}, now=now)


def message_words(message: Message) -> Sequence[str]:
    """Return the made-up words of a message that have to stand in a prompt."""
    return words(message.data)
