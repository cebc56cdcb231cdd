"""One request as each server's template would get it, and the prompt that comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ..conversation import Request
from ..errors import RenderError
from ..policies.base import Action, Policy, Prepared, render_prepared
from ..templates.template import ChatTemplate
from ..transcripts.grouping.conversations import Continuation
from .missing_texts import missing_texts
from .system_turn_outcomes import SystemTurn, system_turns
from .text_spans import TextSpan, find_texts

if TYPE_CHECKING:
    from ..templates.llamacpp import EngineComparison, LlamaCppEngine
    from ..tokenization.tokens import IncrementalEncoder


@dataclass(frozen=True, slots=True)
class Rendered:
    """One turn under one policy.

    Attributes:
        policy: as the person named it.
        prepared: what the template got, and what was done to get there.
        prompt: the text that the template wrote, or None where it raised.
        body_chars: length of the prompt without the generation prompt, in characters (counted); None where
            the template does not render that.
        tokens: length of the prompt in token ids (counted), or None where there is no tokenizer.
        error: what the template raised, or the server answers instead.
        spans: where the messages' texts were found in the prompt (text_spans.py).
        text_missing_of: the client's indices of the messages without text in the prompt; None without one.
        system_turns: what became of each system turn.
        llamacpp: the same request through llama.cpp's engine, where that was asked for.
    """

    policy: str
    prepared: Prepared
    prompt: str | None
    body_chars: int | None
    tokens: int | None
    error: str | None
    spans: tuple[TextSpan, ...]
    text_missing_of: tuple[int, ...] | None
    system_turns: tuple[SystemTurn, ...]
    llamacpp: EngineComparison | None = None

    @property
    def messages(self) -> tuple[Mapping[str, Any], ...]:
        """The messages that the template saw."""
        return tuple(message.data for message in self.prepared.request.messages)

    @property
    def chars(self) -> int | None:
        """Length of the prompt in characters (counted)."""
        return None if self.prompt is None else len(self.prompt)

    @property
    def note_refused_at(self) -> int | None:
        """The client's index of the first message of the system run that could not become a note."""
        refused = (action.messages for action in self.prepared.actions if action.kind == "refused")
        return next((messages[0] for messages in refused if messages), None)


@dataclass(frozen=True, slots=True)
class RenderedTurn:
    """One turn under each policy.

    Attributes:
        continuation: what it continues.
        request: the request as the client sent it.
        policies: in the order in which they were named.
    """

    continuation: Continuation
    request: Request
    policies: tuple[Rendered, ...]

    @property
    def turn(self) -> int:
        """Number of the request, counted from 1."""
        return self.continuation.turn


def render_turn(
    continuation: Continuation,
    request: Request,
    template: ChatTemplate,
    policies: Sequence[Policy],
    *,
    encoder: IncrementalEncoder | None = None,
    engine: LlamaCppEngine | None = None,
) -> RenderedTurn:
    """Render a request under each policy.

    Args:
        continuation: its number, and what it continues.
        request: as the client sent it.
        template: the model's chat template.
        policies: what the servers do to the messages first.
        encoder: counts the tokens, where there is a tokenizer.
        engine: renders once more with llama.cpp's engine, where given.
    """
    rendered = tuple(_render(request, template, policy, encoder, engine) for policy in policies)
    return RenderedTurn(continuation, request, rendered)


def _render(
    request: Request,
    template: ChatTemplate,
    policy: Policy,
    encoder: IncrementalEncoder | None,
    engine: LlamaCppEngine | None,
) -> Rendered:
    prepared = policy.prepare(request, template)
    prompt, error = None, None
    try:
        prompt, prepared = render_prepared(prepared, template)
    except RenderError as raised:
        error = str(raised)
    spans = () if prompt is None else find_texts(prompt, prepared.request.messages)
    missing = None if prompt is None else missing_texts(request, prepared, prompt, spans, template)
    return Rendered(
        policy=policy.name,
        prepared=prepared,
        prompt=prompt,
        body_chars=None if prompt is None else _body_chars(prepared, template),
        tokens=None if prompt is None or encoder is None else len(encoder.encode(prompt)),
        error=error,
        spans=spans,
        text_missing_of=missing,
        system_turns=system_turns(request, prepared, spans, missing or ()),
        llamacpp=None if engine is None else engine.compare(prepared, template),
    )


def _body_chars(prepared: Prepared, template: ChatTemplate) -> int | None:
    try:
        return len(
            template.render_request(prepared.request, add_generation_prompt=False, profile=prepared.profile)
        )
    except RenderError:
        return None


def describe(action: Action) -> str:
    """Say in one line what a policy did to which messages, and why."""
    which = ", ".join(map(str, action.messages))
    return f"{action.kind} {which}: {action.why}" if which else f"{action.kind}: {action.why}"


def turn_to_json(turn: RenderedTurn) -> dict[str, Any]:
    """Return a turn as docs/render.md describes it."""
    continuation = asdict(turn.continuation)
    return {
        **{key: list(value) if isinstance(value, tuple) else value for key, value in continuation.items()},
        "policies": [_to_json(each) for each in turn.policies],
    }


def _to_json(rendered: Rendered) -> dict[str, Any]:
    return {
        "policy": rendered.policy,
        "messages": list(rendered.messages),
        "notes": [describe(action) for action in rendered.prepared.actions],
        "actions": [asdict(action) for action in rendered.prepared.actions],
        "system_turns": [asdict(each) for each in rendered.system_turns],
        "note_refused_at": rendered.note_refused_at,
        "prompt": rendered.prompt,
        "chars": rendered.chars,
        "body_chars": rendered.body_chars,
        "text_missing_of": rendered.text_missing_of,
        "tokens": rendered.tokens,
        "error": rendered.error,
        "llamacpp": None if rendered.llamacpp is None else asdict(rendered.llamacpp),
    }
