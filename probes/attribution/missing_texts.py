"""Which messages have no text in a prompt: left out by the server, or by its template without a word.

A message whose text is not found (text_spans.py) is confirmed by a render in which its letters are changed:
if the prompt stays the same, none of its text is in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..conversation import TOP_LEVEL, Message, Request
from ..errors import RenderError
from ..policies.base import Prepared
from ..templates.template import ChatTemplate
from .perturbation import alter_message, texts_of
from .text_spans import TextSpan


def missing_texts(
    client: Request, prepared: Prepared, prompt: str, spans: Sequence[TextSpan], template: ChatTemplate
) -> tuple[int, ...]:
    """Return the client's indices of the messages that have text, and none of it in the prompt.

    Reasoning and tool calls do not count as text. A message of which only a part is left out does not count
    as missing.

    Args:
        client: the request as the client sent it.
        prepared: what the template got.
        prompt: what it wrote.
        spans: where texts were found.
        template: renders again where nothing was found.
    """
    texts = client_texts(client)
    found = {span.message for span in spans if span.field == "content"}
    unseen = {texts[index] for index in texts.keys() - found}
    # Of equal texts any may be the missing one.
    suspects = [index for index, text in texts.items() if text in unseen]
    return tuple(sorted(_without_effect(suspects, prepared, prompt, template)))


def client_texts(client: Request) -> dict[int, tuple[str, ...]]:
    """Return the texts of the messages that have any, by the client's index; the top-level system's too."""
    top = Message({"role": "system", "content": client.system}, TOP_LEVEL)
    found = {each.index: tuple(_texts(each.data)) for each in (top, *client.messages)}
    return {index: texts for index, texts in found.items() if texts}


def _texts(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message's texts: its content, or an output as items of the Responses API have it."""
    yield from _texts_within(data.get("content", data.get("output")))


def _texts_within(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if value.strip():
            yield value.strip()
    elif isinstance(value, list):
        for part in value:
            yield from _texts_within(part)
    elif isinstance(value, Mapping):
        yield from _texts_within(value.get("text"))
        yield from _texts_within(value.get("content"))


def _without_effect(
    suspects: Sequence[int], prepared: Prepared, prompt: str, template: ChatTemplate
) -> Sequence[int]:
    """Return those of some messages whose letters can change without the prompt changing."""
    if not suspects or _same_when_altered(frozenset(suspects), prepared, prompt, template):
        return suspects
    if len(suspects) == 1:
        return ()
    half = len(suspects) // 2
    return [
        index
        for part in (suspects[:half], suspects[half:])
        for index in _without_effect(part, prepared, prompt, template)
    ]


def _same_when_altered(
    indices: frozenset[int], prepared: Prepared, prompt: str, template: ChatTemplate
) -> bool:
    request = prepared.request
    messages = tuple(
        alter_message(
            message,
            [
                text
                for text in texts_of(message, place)
                if text.field == "content" and text.message in indices
            ],
        )
        for place, message in enumerate(request.messages)
    )
    try:
        return prompt == template.render_request(request.replace(messages=messages), profile=prepared.profile)
    except RenderError:
        return False
