"""The immutable values that everything else passes on: messages, requests, transcripts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

#: The wire format of a request: which API of a server it was sent to.
Dialect = Literal["openai-chat", "anthropic-messages", "openai-responses"]
#: Stands for the index of a request's top-level system text, which is no message of its list.
TOP_LEVEL = -1

SYSTEM_ROLES = frozenset({"system", "developer"})


@dataclass(frozen=True, slots=True)
class Piece:
    """Where a stretch of a built text came from.

    A piece runs from `start` to the start of the next piece of the same `part`, or to the end of the text, so
    that pieces cover a text without gaps. Characters that join two texts belong to the text after them.

    Attributes:
        start: offset in characters within the text.
        message: index of the message in the request as the client sent it.
        part: index within a content list, or None where the content is a string.
    """

    start: int
    message: int
    part: int | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message and where it came from.

    Attributes:
        data: the message. In a request as the client sent it, an item of its own dialect; as a template gets
            it, an OpenAI chat message. Never mutated.
        index: index, in the request as the client sent it, of the message whose keys `data` carries;
            `TOP_LEVEL` for the request's top-level system text.
        pieces: the origins of the content's characters where a policy built it from several messages; empty
            where all of it belongs to `index`.
    """

    data: Mapping[str, Any]
    index: int
    pieces: tuple[Piece, ...] = ()

    @property
    def role(self) -> str:
        """The message's role."""
        return str(self.data["role"])

    @property
    def content(self) -> Any:
        """The message's content: a string, a list of parts, or None."""
        return self.data.get("content")

    def replace(self, pieces: tuple[Piece, ...] | None = None, **changes: Any) -> Message:
        """Return a copy with keys of `data` changed, and `pieces` where given."""
        return Message({**self.data, **changes}, self.index, self.pieces if pieces is None else pieces)

    def origin(self, offset: int, part: int | None = None) -> int:
        """Return the client's index of the message that owns a character of the content.

        Args:
            offset: offset in characters within the content string, or within the text of content part `part`.
            part: index within a content list, or None for a string.
        """
        owner = self.index
        for piece in self.pieces:
            if piece.part == part and piece.start <= offset:
                owner = piece.message
        return owner

    @property
    def origins(self) -> tuple[int, ...]:
        """The client's indices of all messages that this one carries text of, each once, in order."""
        return tuple(dict.fromkeys(piece.message for piece in self.pieces)) or (self.index,)


@dataclass(frozen=True, slots=True)
class ActualReuse:
    """What a server said of its own reuse for one request.

    Attributes:
        reused: prompt tokens that it took from its cache.
        prompt_tokens: length of its prompt; None where it does not say.
        source: where it said so: `usage` or `timings` of its answer, or its `log`.
    """

    reused: int
    prompt_tokens: int | None
    source: Literal["usage", "timings", "log"]


@dataclass(frozen=True, slots=True)
class Request:
    """What one HTTP request brings to the chat template.

    Attributes:
        messages: the conversation so far, in the request's own dialect.
        tools: the tool list in the request's own dialect, or None where the request has none.
        kwargs: the request's `chat_template_kwargs`.
        now: the clock that the template shall see, or None for the caller's.
        partial: the last message is to be continued (`continue_final_message`), without a generation prompt.
        reply: the assistant message that the model gave, where the transcript has it.
        where: `file:line` for messages to people.
        dialect: the wire format of messages and tools.
        system: the top-level system text of other dialects than `openai-chat`, as sent: a text, a list of
            blocks, or None. A policy makes it the first message, with index `TOP_LEVEL`.
        fields: other fields of the request's body that some servers hand on to the template, such as
            `thinking` or `reasoning_effort`.
        sent: when the client sent it, where the transcript tells.
        response_id: id of the response to it, which a later request may name as its predecessor.
        template: source of the template that the server renders with instead of the model's; None for that.
        answered: whether the transcript has the server's answer.
        actual: what the response says of the server's reuse; None where it says nothing.
    """

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    now: datetime | None = None
    partial: bool = False
    reply: Mapping[str, Any] | None = None
    where: str = ""
    dialect: Dialect = "openai-chat"
    system: Any = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    sent: datetime | None = None
    response_id: str | None = None
    template: str | None = None
    answered: bool = False
    actual: ActualReuse | None = None

    def role_of(self, index: int) -> str:
        """Return the role of the message at an index that an owner or a piece names."""
        message = self.message(index)
        return "system" if message is None else str(message.data.get("role", ""))

    def message(self, index: int) -> Message | None:
        """Return the message with an index; None for the top-level system text.

        A request that some messages were taken out of keeps the others' indices.

        Raises:
            IndexError: there is no such message.
        """
        if index == TOP_LEVEL:
            return None
        if index < len(self.messages) and self.messages[index].index == index:
            return self.messages[index]
        for message in self.messages:
            if message.index == index:
                return message
        raise IndexError(f"the request has no message {index}")

    def replace(self, **changes: Any) -> Request:
        """Return a copy with fields changed."""
        return dataclasses.replace(self, **changes)

    def sharing(self, earlier: Request) -> Request:
        """Return this request with the objects of an earlier one wherever both are written alike.

        What a long conversation repeats is then held once, and told to be the same at a glance.
        """
        messages = tuple(
            old if old.index == new.index and written_alike(old.data, new.data) else new
            for old, new in zip(earlier.messages, self.messages, strict=False)
        )
        tools = earlier.tools if written_alike(earlier.tools, self.tools) else self.tools
        return self.replace(messages=messages + self.messages[len(messages) :], tools=tools)


def written_alike(one: Any, other: Any) -> bool:
    """Tell whether two values are the same as written; `==` takes 1 for true and ignores the keys' order."""
    if one is other:
        return True
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return list(one) == list(other) and all(written_alike(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(written_alike, one, other))
    return type(one) is type(other) and bool(one == other)


@dataclass(frozen=True, slots=True)
class Transcript:
    """The ordered requests that one server saw, read anew at each iteration and never held whole.

    Attributes:
        source: what a person called it: a path, or `-`.
        dialect: the wire format of its requests.
        open: starts reading from the beginning.
        format: name of the format that it is stored in; empty where it is in none.
    """

    source: str
    dialect: Dialect
    open: Callable[[], Iterator[Request]]
    format: str = ""

    def __iter__(self) -> Iterator[Request]:
        return self.open()

    def with_kwargs(self, kwargs: Mapping[str, Any]) -> Transcript:
        """Return the same transcript with chat-template kwargs laid over every request's own."""
        if not kwargs:
            return self

        def read() -> Iterator[Request]:
            for request in self.open():
                yield request.replace(kwargs={**request.kwargs, **kwargs})

        return dataclasses.replace(self, open=read)


def named_messages(indices: Iterable[int]) -> str:
    """Return words for some messages, by their indices: `message 3`, `messages 3, 7`, `the system prompt`."""
    found = list(indices)
    numbers = [str(index) for index in found if index != TOP_LEVEL]
    names = ["the system prompt"] if TOP_LEVEL in found else []
    if numbers:
        names.append(f"message{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}")
    return " and ".join(names)
