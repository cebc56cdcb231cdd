"""How much of a prompt stands before what an earlier request of its conversation did not have."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import takewhile
from typing import TYPE_CHECKING

from ..tokenization.tokens import common_prefix_ids
from .prompt import Prompt
from .text_spans import TextSpan, find_texts

if TYPE_CHECKING:
    from ..tokenization.tokens import Ids

Encode = Callable[[str], "Ids"]


def kept_tokens(
    earlier: Prompt, later: Prompt, new: Collection[int], body_is_prefix: bool, encode: Encode
) -> int:
    """Return the tokens of a prompt without those of the messages that an earlier request did not have.

    The generation prompt belongs to the latter. Where the earlier prompt is no prefix, the texts of messages
    are looked for in the prompt; what the template writes around them goes with the text behind it.

    Args:
        earlier: the earlier prompt.
        later: the prompt.
        new: indices of those messages in the later request.
        body_is_prefix: whether the earlier prompt without its generation prompt is a prefix of the later one.
        encode: encodes a text.
    """
    text, length = later.text, len(later.ids)
    appended = new == set(range(len(earlier.client.messages), len(later.client.messages)))
    if body_is_prefix and appended:
        return _tokens_before(later, len(earlier.body), encode)
    spans = find_texts(text, later.rendered.messages)
    start = _start(earlier, later, spans, new)
    kept = _tokens_before(later, start, encode)
    for span in spans:
        if span.message in new and span.end <= start:
            kept -= len(encode(text[span.start : span.end]))
        elif span.message not in new and span.start >= start:
            kept += len(encode(text[span.start : span.end]))
    return max(0, min(kept, length))


def _start(earlier: Prompt, later: Prompt, spans: tuple[TextSpan, ...], new: Collection[int]) -> int:
    """Return where the new messages begin that stand behind the others."""
    appended = _appended(later, new)
    if not appended:
        body = later.body
        return len(body) if later.text.startswith(body) else len(later.text)
    fresh = sorted(
        (span.rendered_index, span.start)
        for span in spans
        if span.message in appended and not _is_system(later, span)
    )
    if not fresh:
        before = [span.end for span in spans if span.message not in appended]
    else:
        before = [span.end for span in spans if span.message not in appended and span.end <= fresh[0][1]]
    end = max(before, default=0)
    closing = _closing(earlier)
    return end + len(closing) if closing and later.text.startswith(closing, end) else end


def _appended(later: Prompt, new: Collection[int]) -> frozenset[int]:
    """Return which of the new messages stand behind all others."""
    indices = [message.index for message in reversed(later.client.messages)]
    return frozenset(takewhile(lambda index: index in new, indices))


def _is_system(prompt: Prompt, span: TextSpan) -> bool:
    return prompt.client.role_of(span.message) in ("system", "developer")


def _closing(earlier: Prompt) -> str:
    """Return what the template writes behind the last text of the earlier request."""
    body = earlier.body
    ends = [span.end for span in find_texts(body, earlier.rendered.messages)]
    return body[max(ends) :] if ends else ""


def _tokens_before(prompt: Prompt, chars: int, encode: Encode) -> int:
    """Return how many of a prompt's tokens stand before a character of it."""
    return common_prefix_ids(encode(prompt.text[:chars]), prompt.ids)
