"""What a client changed in messages that it had sent before."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

from ..conversation import Message
from .reasoning import is_reasoning_item

Messages = tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class MessageChange:
    """One stretch of the earlier request's messages, and what stands there in the later request.

    Attributes:
        kind: `replace`, `delete` or `insert`.
        old: positions in the earlier request.
        new: positions in the later request.
    """

    kind: Literal["replace", "delete", "insert"]
    old: range
    new: range

    @property
    def single(self) -> bool:
        """Whether it is one message for one message."""
        return self.kind == "replace" and len(self.old) == len(self.new) == 1


def as_written(value: Any) -> str:
    """Return a value as it was written, key order and all: what differs here may differ in a prompt."""
    return json.dumps(value, ensure_ascii=False, default=str)


def changes(before: Messages, after: Messages) -> list[MessageChange]:
    """Return what a client changed, in order. Empty where it only appended.

    Messages are taken to have kept their positions where that makes fewer changes than another reading.
    """
    same = _shared(before, after)
    if same == len(before):
        return []
    kept, shifted = _in_place(before, after, same), _aligned(before, after, same)
    return kept if kept is not None and len(kept) < sum(map(_size, shifted)) else shifted


def _in_place(before: Messages, after: Messages, same: int) -> list[MessageChange] | None:
    """Return the changes where every message kept its position and role; None where they did not."""
    rest = range(same, len(before))
    if len(after) < len(before) or _roles(before, rest) != _roles(after, rest):
        return None
    return [_replaced(at, at) for at in rest if _written(before[at]) != _written(after[at])]


def _aligned(before: Messages, after: Messages, same: int) -> list[MessageChange]:
    """Return the changes where messages that are alike stand for each other."""
    found: list[MessageChange] = []
    for kind, old, new in _opcodes(before, after, same):
        if kind == "equal" or (kind == "insert" and old.start == len(before)):
            continue  # what comes behind the earlier request's last message was appended
        if kind == "replace" and old.stop == len(before):
            # Likewise: of what stands in the place of the last messages, only as many replace them.
            new = range(new.start, min(new.stop, new.start + len(old)))
            if _roles(before, old)[: len(new)] != _roles(after, new):
                kind, new = "delete", range(new.start, new.start)
        if kind == "replace" and len(old) == len(new) and _roles(before, old) == _roles(after, new):
            found += map(_replaced, old, new)
        else:
            found.append(MessageChange(kind, old, new))
    return found


def _replaced(at: int, new: int) -> MessageChange:
    return MessageChange("replace", range(at, at + 1), range(new, new + 1))


def _size(change: MessageChange) -> int:
    return max(len(change.old), len(change.new))


def restored(before: Messages, after: Messages) -> list[Message]:
    """Return the later request's messages with every change undone: the earlier ones, then what is new."""
    same = _shared(before, after)
    appended: list[Message] = []
    for kind, old, new in _opcodes(before, after, same):
        if old.stop == len(before) and kind in ("insert", "replace"):
            replaced = min(len(old), len(new))
            if _roles(before, old)[:replaced] != _roles(after, new)[:replaced]:
                replaced = 0
            appended = list(after[new.start + replaced : new.stop])
    return [*before, *appended]


def drops_reasoning(before: Messages, change: MessageChange) -> bool:
    """Tell whether a change is that items of reasoning are no longer sent, and nothing else."""
    return change.kind == "delete" and all(is_reasoning_item(before[position]) for position in change.old)


def with_dropped(before: Messages, after: Messages, dropped: list[MessageChange]) -> list[Message]:
    """Return the later request's messages with what was deleted put back at its places."""
    at = {change.new.start: before[change.old.start : change.old.stop] for change in dropped}
    places = range(len(after) + 1)
    return [each for place in places for each in (*at.get(place, ()), *after[place : place + 1])]


def moved(before: Messages, after: Messages, found: list[MessageChange]) -> tuple[int, int] | None:
    """Return the old and new position of the first message that only changed its place, if one did."""
    old, new = [_written(each) for each in before], [_written(each) for each in after]
    for change in found:
        for at in change.old if change.kind == "delete" else ():
            if old[at] in new and new.count(old[at]) >= old.count(old[at]):
                return at, len(new) - 1 - new[::-1].index(old[at])
    return None


def _shared(before: Messages, after: Messages) -> int:
    most = min(len(before), len(after))
    return next(
        (
            index
            for index in range(most)
            if before[index].data is not after[index].data
            and _written(before[index]) != _written(after[index])
        ),
        most,
    )


def _opcodes(
    before: Messages, after: Messages, same: int
) -> Iterator[tuple[Literal["replace", "delete", "insert", "equal"], range, range]]:
    old, new = [_written(each) for each in before[same:]], [_written(each) for each in after[same:]]
    for kind, start, end, new_start, new_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        yield kind, range(same + start, same + end), range(same + new_start, same + new_end)


def _written(message: Message) -> str:
    """Return what is compared of a message: marks for the server's cache move every turn."""
    return as_written(_without_marks(message.data))


def _without_marks(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_marks(item) for key, item in value.items() if key != "cache_control"}
    return [_without_marks(each) for each in value] if isinstance(value, list | tuple) else value


def _roles(messages: Messages, positions: range) -> list[Any]:
    return [messages[position].data.get("role") for position in positions]


def flat_text(content: Any) -> str | None:
    """Return the text of a content in either form; None where it has parts that are no text."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
        if all(isinstance(text, str) for text in texts):
            return "\n".join(map(str, texts))
    return None
