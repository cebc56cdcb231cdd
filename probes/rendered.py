"""One request as each server's template would get it: the value behind `tplaudit render`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .conversation import Request, Transcript
from .errors import RenderError
from .policies.base import Action, Policy, Prepared, render_prepared
from .template import ChatTemplate
from .tokens import IncrementalEncoder

SCHEMA = "tplaudit.render/1"


@dataclass(frozen=True, slots=True)
class Rendered:
    """One turn under one policy. The field names are the JSON names.

    Attributes:
        policy: as the person named it.
        messages: the messages that the template sees.
        notes: what the policy did and why.
        prompt: the text that it writes, or None where it raised.
        chars: length of the prompt in characters (counted).
        body_chars: the same without the generation prompt.
        tokens: length in token ids (counted), or None where there is no tokenizer.
        error: what the template raised.
    """

    policy: str
    messages: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]
    prompt: str | None
    chars: int | None
    body_chars: int | None
    tokens: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class RenderedTurn:
    """One turn, counted from 1, under each policy."""

    turn: int
    policies: tuple[Rendered, ...]


def render_turns(
    transcript: Transcript,
    template: ChatTemplate,
    policies: Sequence[Policy],
    *,
    encoder: IncrementalEncoder | None = None,
    only: int | None = None,
) -> Iterator[RenderedTurn]:
    """Render the requests of a transcript under each policy.

    Args:
        transcript: the requests.
        template: the model's chat template.
        policies: what the servers do to the messages first.
        encoder: counts the tokens, where there is a tokenizer.
        only: the one turn to render; None for all. Requests behind it are not read.

    Raises:
        InputError: the transcript cannot be read.
    """
    for turn, request in enumerate(transcript, 1):
        if only is None or turn == only:
            rendered = tuple(_render(request, template, policy, encoder) for policy in policies)
            yield RenderedTurn(turn, rendered)
        if turn == only:
            return


def _render(
    request: Request, template: ChatTemplate, policy: Policy, encoder: IncrementalEncoder | None
) -> Rendered:
    prepared = policy.prepare(request, template)
    try:
        prompt, prepared = render_prepared(prepared, template)
        body = template.render_request(
            prepared.request, add_generation_prompt=False, profile=prepared.profile
        )
    except RenderError as error:
        return Rendered(policy.name, *_shown(prepared), None, None, None, None, str(error))
    tokens = None if encoder is None else len(encoder.encode(prompt))
    return Rendered(policy.name, *_shown(prepared), prompt, len(prompt), len(body), tokens, None)


def _shown(prepared: Prepared) -> tuple[tuple[Mapping[str, Any], ...], tuple[str, ...]]:
    messages = tuple(message.data for message in prepared.request.messages)
    return messages, tuple(describe(action) for action in prepared.actions)


def describe(action: Action) -> str:
    """Say in one line what a policy did to which messages, and why."""
    which = ", ".join(map(str, action.messages))
    return f"{action.kind} {which}: {action.why}" if which else f"{action.kind}: {action.why}"
