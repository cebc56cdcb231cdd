"""The prompts of a conversation, turn by turn: which texts are missing, and in which order they stand."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...conversation import Message, Request
from ...errors import RenderError
from .shapes import is_mid_system

#: The texts of a message that have to stand in a prompt.
TextsOf = Callable[[Message], Sequence[str]]


@dataclass(frozen=True, slots=True)
class TurnRenders:
    """What came of rendering one request.

    Attributes:
        request: what was rendered.
        prompt: the prompt, or what the template raised.
        body: the same without the generation prompt; None where that was not asked for.
    """

    request: Request
    prompt: str | RenderError
    body: str | RenderError | None = None


@dataclass(frozen=True, slots=True)
class PromptOutline:
    """The prompt of one request.

    Attributes:
        digest: hash of the prompt; None where the template raised.
        body: hash of the prompt without its generation prompt; None where that was not rendered.
        error: what the template raised.
        line: template line that raised, where known.
        lost: indices of messages of which a text is missing.
        disordered: whether the texts stand in another order than in the conversation.
        appended: whether the prompt begins with the body of the request before it, trailing white space
            ignored; None for the first request.
        text: the prompt itself, where it is at hand.
        request: what was rendered, where it is at hand.
    """

    digest: str | None
    body: str | None = None
    error: str | None = None
    line: int | None = field(default=None, compare=False)
    lost: tuple[int, ...] = ()
    disordered: bool = False
    appended: bool | None = None
    text: str | None = field(default=None, repr=False, compare=False)
    request: Request | None = field(default=None, repr=False, compare=False)

    @property
    def stopped(self) -> bool:
        """Whether there is none because the render exceeded a bound: nothing that the template did."""
        return self.error is not None and self.error.startswith("not evaluated, ")

    @property
    def rendered(self) -> bool:
        """Whether there is a prompt."""
        return self.digest is not None


class Turns:
    """Outlines the prompts of one conversation in order, keeping only the last body.

    Args:
        texts_of: the texts that have to stand in the prompts.
    """

    def __init__(self, texts_of: TextsOf) -> None:
        self._texts_of = texts_of
        self._last: str | None = None

    def outline(self, turn: TurnRenders) -> PromptOutline:
        """Describe the prompt of the next request."""
        last, self._last = self._last, None
        for render in (turn.prompt, turn.body):
            if isinstance(render, RenderError):
                return PromptOutline(None, error=str(render), line=render.line, request=turn.request)
        text, body = str(turn.prompt), None if turn.body is None else str(turn.body)
        self._last = body
        lost, disordered = _judge(text, turn.request.messages, self._texts_of)
        return PromptOutline(
            digest(text),
            None if body is None else digest(body),
            lost=lost,
            disordered=disordered,
            appended=None if last is None else text.startswith(last.rstrip()),
            text=text,
            request=turn.request,
        )


def digest(text: str) -> str:
    """Return a short hash of a text, hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _judge(text: str, messages: Sequence[Message], texts_of: TextsOf) -> tuple[tuple[int, ...], bool]:
    """Return the messages that are missing, and whether the others stand out of order."""
    lost = []
    disordered = False
    place = 0
    for index, message in enumerate(messages):
        found = [(word, text.find(word, place)) for word in texts_of(message)]
        for word, at in found:
            if at >= 0:
                place = max(place, at)
            elif word in text:
                disordered = True
            else:
                lost.append(index)
    return tuple(dict.fromkeys(lost)), disordered


def mid_system(request: Request) -> frozenset[int]:
    """Return the indices of the system turns that other turns precede."""
    messages = request.messages
    return frozenset(index for index in range(len(messages)) if is_mid_system(messages, index))


def placements_in(request: Request) -> frozenset[str]:
    """Return where the mid-conversation system turns of a request stand, as `tool/tail`."""
    found = set()
    roles = [message.role for message in request.messages]
    middle = mid_system(request)
    for index in middle:
        before = next((role for at, role in reversed(list(enumerate(roles[:index]))) if at not in middle), "")
        after = next((role for at, role in enumerate(roles) if at > index and at not in middle), None)
        follows = {None: "tail", "assistant": "between", "user": "before-user", "tool": "before-tool"}.get(
            after
        )
        if follows is not None and before in ("user", "tool", "assistant"):
            found.add(f"{before}/{follows}")
    return frozenset(found)
