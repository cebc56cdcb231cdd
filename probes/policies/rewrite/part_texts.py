"""The texts of a message's content one by one, and system turns built from them.

Servers differ in what they put between the parts of one content, in whether they trim them, and in which they
leave out; `texts.flat_text` is oMLX's way alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...conversation import TOP_LEVEL, Message
from ..base import Action, Messages, Rewrite
from .system_turns import each_changed, has_role, indices, is_system
from .texts import Text, content_text, join, part_text, rebuilt

SystemTexts = list[tuple[Message, list[Text]]]


def part_texts(message: Message) -> list[Text]:
    """Return the text of each part of a list, or a content that is no list as one text.

    Parts that are not text are left out; a missing content is one empty text.
    """
    content = message.content
    if not isinstance(content, list):
        return [content_text(message, None, str(content) if content else "")]
    texts = ((number, part_text(part)) for number, part in enumerate(content))
    return [content_text(message, number, text) for number, text in texts if text is not None]


def whole_text(message: Message, leads: bool) -> list[Text]:
    """Return all text of a message as one, lines of their own; nothing where there is none.

    Args:
        message: the message.
        leads: whether it leads the conversation, which makes no difference here (see `merge_into_first`).
    """
    text = join(part_texts(message), "\n")
    return [text] if text else []


def as_one_text(message: Message, separator: str) -> Message:
    """Return a message with its texts as one; whatever else its content holds is lost."""
    text = join(part_texts(message), separator)
    return rebuilt(message, text.text, text.pieces())


def as_text_list(message: Message) -> Message:
    """Return a message with its content as a list of parts: one text, or none where it has no content."""
    content = message.content
    if isinstance(content, list):
        return message
    if content is None:
        return message.replace(content=[])
    text = content_text(message, None, str(content))
    return rebuilt(message, [{"type": "text", "text": text.text}], text.pieces(0))


def is_text_part(part: Any) -> bool:
    """Tell whether a part of a content list is text in the form of OpenAI's API."""
    return isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str)


def stripped(text: Text) -> Text:
    """Return a text without the white space at its ends, its characters still with their owners."""
    left = len(text.text) - len(text.text.lstrip())
    body = text.text.strip()
    owners: list[tuple[int, int]] = []
    for start, owner in text.owners:
        at = max(start - left, 0)
        if at and at >= len(body):
            break
        if owners and owners[-1][0] == at:
            owners.pop()
        owners.append((at, owner))
    return Text(body, tuple(owners))


def joined(texts: Sequence[Text], separator: str) -> Text:
    """Return texts as one; without a separator an empty text leaves no trace."""
    if separator:
        return join(texts, separator)
    return join([text for text in texts if text] or texts[:1], separator)


def system_turn(texts: Sequence[tuple[Message, Text]], separator: str) -> Message:
    """Return one system message of several messages' texts, with the first message's index."""
    first = texts[0][0]
    text = joined([text for _, text in texts], separator)
    own = all(owner == first.index for _, owner in text.owners)
    return Message({"role": "system", "content": text.text}, first.index, () if own else text.pieces())


def lines_after_top(systems: Sequence[Message]) -> Message | None:
    """Return system turns as one: the top-level text, an empty line, and the others line by line.

    Turns without text leave no trace; without any text there is none.
    """
    texts = [(message, text) for message in systems if (text := join(part_texts(message), "\n"))]
    if not texts:
        return None
    top = [text for message, text in texts if message.index == TOP_LEVEL]
    later = [text for message, text in texts if message.index != TOP_LEVEL]
    inner = [join(later, "\n")] if later else []
    return system_turn([(texts[0][0], join([*top, *inner], "\n\n"))], "")


def without_empty_blocks(message: Message) -> Message:
    """Return a message of Anthropic's API, and of a system message's blocks only those with text."""
    if not is_system(message) or not isinstance(message.content, list):
        return message
    kept = [block for block in message.content if part_text(block)]
    return message if len(kept) == len(message.content) else message.replace(content=kept)


def merge_into_first(
    messages: Messages, texts_of: Callable[[Message, bool], list[Text]], separator: str, why: str
) -> Rewrite:
    """Move the texts of all system turns into one first system message; without any text there is none.

    Args:
        messages: the conversation.
        texts_of: the texts that the server takes from a system turn, given whether it belongs to those that
            stand first, which are the request's own system text.
        separator: what the server puts between them, of the same turn or not.
        why: the clause for a turn that is moved.
    """
    texts: list[tuple[Message, Text]] = []
    actions: list[Action] = []
    leads = True
    for message in messages:
        if not is_system(message):
            leads = False
            continue
        mine = texts_of(message, leads)
        texts += ((message, text) for text in mine)
        if not mine:
            actions.append(Action("dropped", indices((message,)), "no text that the server takes"))
        elif leads:
            actions.append(Action("kept", indices((message,)), "is first in the conversation"))
        else:
            actions.append(Action("hoisted", indices((message,)), why))
    others = tuple(message for message in messages if not is_system(message))
    return Rewrite((system_turn(texts, separator), *others) if texts else others, tuple(actions))


def as_system(messages: Messages) -> Rewrite:
    """Give developer messages the role `system`."""
    return each_changed(messages, _with_system_role, "converted", "the role developer becomes system")


def _with_system_role(message: Message) -> Message:
    return message.replace(role="system") if has_role(message, "developer") else message
