"""Which message, field and template line wrote a character of a prompt.

No marks are put into the text. The template's generator is stepped to the chunk that covers the character,
and its local variables hint at the message being rendered (rendering.chunk_at). A chunk may print another
message's text, though, so the conversation is rendered again with texts altered (perturbation.py): the
characters that change belong to the altered text. Texts are told apart by a binary code, so that `n`
candidates take about `log2(n)` renders. See docs/attribution.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..conversation import Request
from ..errors import RenderError
from ..templates.rendering import Chunk, Profile
from ..templates.template import ChatTemplate
from .perturbation import MessageText, alter_message, alter_tools, occurs_in, texts_of

Region = Literal["message", "head", "tools", "generation", "unknown"]


@dataclass(frozen=True, slots=True)
class Owner:
    """What a character of a prompt belongs to.

    Attributes:
        region: `message`; `tools` for the tool list; `generation` for the generation prompt; `unknown` where
            it could not be found; else `head`.
        index: index of the message in the client's request, for region `message`.
        role: the client's role of that message.
        field: `content`, `reasoning`, `tool_calls`, another key of the message, or `header` for what the
            template writes around them.
        rendered_index: index of the message in the list that the template saw.
        line: line of the template source that wrote it, counted from 1, or None.
    """

    region: Region
    index: int | None = None
    role: str | None = None
    field: str | None = None
    rendered_index: int | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class _Tools:
    """Stands for the tool list among the candidates."""


Candidate = MessageText | _Tools


def owner_at(
    template: ChatTemplate,
    client: Request,
    rendered: Request,
    prompt: str,
    offset: int,
    body: Callable[[], str],
    profile: Profile = "transformers",
) -> Owner:
    """Find the owner of a character of a prompt.

    Args:
        template: the template that rendered the prompt.
        client: the request as the client sent it.
        rendered: the request as the policy made it, which the template saw.
        prompt: the prompt, generation prompt included.
        offset: offset of the character; at or behind the end the last character is taken.
        body: returns the prompt without its generation prompt; asked only where it matters.
        profile: what the template got besides the messages.

    Raises:
        RenderError: the template does not render the request (any more), or not to the same prompt.
    """
    offset = min(offset, len(prompt) - 1)
    if offset < 0:
        return Owner("head")
    try:
        chunk = template.chunk_at(rendered, offset, profile=profile)
    except IndexError as error:
        raise RenderError("ValueError", "the template does not render the same prompt twice") from error
    # A prompt that continues the final message is cut in the middle of what the template writes.
    chunk = replace(chunk, end=min(chunk.end, len(prompt)))
    found = None
    if not chunk.literal:
        found = _text_at(_PerturbedRender(template, rendered, prompt, chunk, profile), offset)
    if isinstance(found, _Tools):
        return Owner("tools", line=chunk.line)
    if found is not None:
        return _message_owner(client, found.message, found.field, found.rendered_index, chunk.line)
    without = body()
    if offset >= len(without) and prompt.startswith(without):
        return Owner("generation", line=chunk.line)
    if chunk.messages:
        index = chunk.messages[-1]
        return _message_owner(client, rendered.messages[index].index, "header", index, chunk.line)
    return Owner("tools" if chunk.tools else "head", line=chunk.line)


def _message_owner(client: Request, index: int, field: str, rendered_index: int, line: int | None) -> Owner:
    return Owner("message", index, client.role_of(index), field, rendered_index, line)


def _text_at(trial: _PerturbedRender, offset: int) -> Candidate | None:
    """Find the text that a character belongs to, or None where its chunk holds no text of the request."""
    rendered, chunk = trial.rendered, trial.chunk
    texts = [text for index, message in enumerate(rendered.messages) for text in texts_of(message, index)]
    tools: list[Candidate] = [_Tools()] if rendered.tools else []
    written = trial.prompt[chunk.start : chunk.end]
    likely: list[Candidate] = [
        text
        for text in texts
        if text.rendered_index in chunk.messages
        or occurs_in(rendered.messages[text.rendered_index], text, written)
    ]
    if chunk.tools or any(name in written for name in _names(rendered)):
        likely += tools
    everything: list[Candidate] = [*texts, *tools]
    # What is likely is altered first: altering everything costs as much as the whole conversation.
    if found := _owner_among(trial.codes(likely), offset):
        return found
    if trial.changed([everything]) == [[]]:
        return None
    return _owner_among(trial.codes(everything), offset) or _owner_among(
        trial.codes_one_by_one(likely[:16]), offset
    )


def _owner_among(codes: Mapping[int, Candidate], offset: int) -> Candidate | None:
    """Return who owns a character, or the next one that is owned."""
    if not codes:
        return None
    # Joining characters belong to the text after them, a tail to the text before.
    after = min((position for position in codes if position >= offset), default=None)
    return codes[max(codes) if after is None else after]


def _names(request: Request) -> Iterator[str]:
    """Yield the names of a request's tools."""
    for tool in request.tools or ():
        function = tool.get("function", tool)
        name = function.get("name") if isinstance(function, Mapping) else None
        if isinstance(name, str) and name:
            yield name


@dataclass(frozen=True, slots=True)
class _PerturbedRender:
    """Renders of one conversation with some of its texts altered, compared within one chunk."""

    template: ChatTemplate
    rendered: Request
    prompt: str
    chunk: Chunk
    profile: Profile

    def codes(self, candidates: Sequence[Candidate]) -> dict[int, Candidate]:
        """Tell who owns which character, altering the candidates by the bits of their numbers.

        Empty where altering changed nothing, or changed so much that nothing can be told.
        """
        subsets = [
            [one for number, one in enumerate(candidates, 1) if number >> bit & 1]
            for bit in range(len(candidates).bit_length())
        ]
        codes: dict[int, int] = {}
        for bit, positions in enumerate(self.changed(subsets)):
            if positions is None:
                return {}
            for position in positions:
                codes[position] = codes.get(position, 0) | 1 << bit
        return {position: candidates[code - 1] for position, code in codes.items() if code <= len(candidates)}

    def codes_one_by_one(self, candidates: Sequence[Candidate]) -> dict[int, Candidate]:
        """Tell who owns which character, altering one candidate at a time."""
        found = self.changed([[candidate] for candidate in candidates])
        return {
            position: candidate
            for candidate, positions in zip(candidates, found, strict=True)
            for position in positions or ()
        }

    def changed(self, subsets: Sequence[Sequence[Candidate]]) -> list[list[int] | None]:
        """Return, for each set of candidates, the offsets that change when all of them are altered.

        None where the altered conversation does not render, or not to the same length.
        """
        start, end = self.chunk.start, self.chunk.end
        requests = [self._altered(candidates) for candidates in subsets]
        found = self.template.render_slices(requests, start, end, profile=self.profile)
        own = self.prompt[start:end]
        return [
            None
            if isinstance(each, RenderError) or each[0] != len(self.prompt)
            else _differing(own, each[1], start)
            for each in found
        ]

    def _altered(self, candidates: Sequence[Candidate]) -> Request:
        by_message: dict[int, list[MessageText]] = {}
        for candidate in candidates:
            if isinstance(candidate, MessageText):
                by_message.setdefault(candidate.rendered_index, []).append(candidate)
        messages = tuple(
            alter_message(message, by_message[index]) if index in by_message else message
            for index, message in enumerate(self.rendered.messages)
        )
        tools = self.rendered.tools
        if tools and any(isinstance(candidate, _Tools) for candidate in candidates):
            tools = alter_tools(tools)
        return self.rendered.replace(messages=messages, tools=tools)


def _differing(one: str, other: str, start: int) -> list[int]:
    """Return the offsets, counted from `start`, at which two texts of one length differ."""
    if one == other:
        return []
    return [start + at for at, (mine, its) in enumerate(zip(one, other, strict=True)) if mine != its]
