"""System turns within a conversation: where they stand, joining them in place, moving them to the front.

The rules are oMLX's, which other servers share in part (docs/servers.md, section 1; jundot/omlx,
omlx/api/utils.py): a run is a longest stretch of neighbouring `system` and `developer` messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ...conversation import SYSTEM_ROLES, Message
from ..base import Action, ActionKind, Messages, Rewrite
from .texts import Text, flat_text, join

BETWEEN_SYSTEM_TEXTS = "\n\n"
#: The roles after which oMLX may leave a system turn in place.
PREDECESSORS = ("user", "tool")


@dataclass(frozen=True, slots=True)
class Run:
    """A run of system messages: those at the positions from `start` to before `stop` of a list."""

    start: int
    stop: int
    messages: Messages

    @property
    def leads(self) -> bool:
        """Whether no other message stands before the run."""
        return self.start == 0

    @property
    def indices(self) -> tuple[int, ...]:
        """The client's indices of the messages."""
        return indices(self.messages)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a run stands for oMLX's probe.

    Attributes:
        preceding: the role before it, `user` or `tool`.
        kind: `tail` at the end of the conversation, `between` before an assistant turn.
    """

    preceding: str
    kind: str

    def __str__(self) -> str:
        return f"{self.preceding}/{self.kind}"


def indices(messages: Sequence[Message]) -> tuple[int, ...]:
    """Return the client's indices of the messages that these carry text of, each once."""
    return tuple(dict.fromkeys(index for message in messages for index in message.origins))


def has_role(message: Message | None, *roles: str) -> bool:
    """Return whether there is a message and it has one of the roles."""
    return message is not None and message.data.get("role") in roles


def is_system(message: Message) -> bool:
    """Return whether the role is `system` or `developer`."""
    return has_role(message, *SYSTEM_ROLES)


def system_runs(messages: Messages) -> tuple[Run, ...]:
    """Return the runs of system messages, in order."""
    runs: list[Run] = []
    start = None
    for position, message in enumerate(messages):
        if is_system(message):
            start = position if start is None else start
        elif start is not None:
            runs.append(Run(start, position, messages[start:position]))
            start = None
    if start is not None:
        runs.append(Run(start, len(messages), messages[start:]))
    return tuple(runs)


def neighbours(messages: Messages, run: Run) -> tuple[Message | None, Message | None]:
    """Return the messages before and after a run."""
    before = None if run.leads else messages[run.start - 1]
    after = messages[run.stop] if run.stop < len(messages) else None
    return before, after


def placement(messages: Messages, run: Run, predecessors: tuple[str, ...] = PREDECESSORS) -> Placement | None:
    """Return where a later run stands, or None where oMLX never leaves a system turn in place.

    Supported are only one of `predecessors` before it, and an assistant or nothing after it. The tool result
    is accepted since August 2026 (jundot/omlx#2753).
    """
    before, after = neighbours(messages, run)
    if before is None or not has_role(before, *predecessors):
        return None
    if after is None:
        return Placement(before.role, "tail")
    return Placement(before.role, "between") if has_role(after, "assistant") else None


def each_changed(
    messages: Messages, change: Callable[[Message], Message], kind: ActionKind, why: str
) -> Rewrite:
    """Change messages one by one; those that `change` returns as they are were not touched."""
    output = tuple(map(change, messages))
    changed = [old for old, new in zip(messages, output, strict=True) if old is not new]
    return Rewrite(output, done(kind, changed, why))


def done(kind: ActionKind, messages: Sequence[Message], why: str) -> tuple[Action, ...]:
    """Return the action of what was done to messages; none where there are none."""
    return (Action(kind, indices(messages), why),) if messages else ()


def join_neighbours(messages: Messages, join_two: Callable[[Message, Message], Message | None]) -> Rewrite:
    """Join neighbouring turns, of which the later ones lose their other keys.

    Args:
        messages: the conversation.
        join_two: returns two turns as one, or None where they stay apart.
    """
    output: list[Message] = []
    actions: list[Action] = []
    for message in messages:
        earlier = output[-1] if output else None
        joined = None if earlier is None else join_two(earlier, message)
        if earlier is None or joined is None:
            output.append(message)
            continue
        lost = sorted(key for key, value in message.data.items() if key not in ("role", "content") and value)
        why = f"neighbouring {message.data.get('role')} turns are joined"
        why += f"; {', '.join(lost)} of message {message.index} is lost" if lost else ""
        actions.append(Action("merged", indices((earlier, message)), why))
        output[-1] = joined
    return Rewrite(tuple(output), tuple(actions))


def texts_of(messages: Sequence[Message]) -> list[tuple[Message, Text]]:
    """Return the messages that have text, each with it."""
    return [(message, text) for message in messages if (text := flat_text(message))]


def keep(messages: Messages, why: str) -> Rewrite:
    """Leave all messages as they are."""
    return Rewrite(messages, tuple(Action("kept", run.indices, why) for run in system_runs(messages)))


def keep_each(messages: Messages) -> Rewrite:
    """Leave all messages as they are, in one action for all system turns."""
    systems = [message for message in messages if is_system(message)]
    return Rewrite(messages, done("kept", systems, "passed on where it stands"))


def merge_runs(messages: Messages, why: str) -> Rewrite:
    """Replace each run by one system message where it stands; a run without text vanishes."""
    output: list[Message] = []
    actions: list[Action] = []
    position = 0
    for run in system_runs(messages):
        output += messages[position : run.start]
        position = run.stop
        texts = texts_of(run.messages)
        if texts:
            output.append(_system_turn(texts))
        actions += _describe(run, "kept", why)
    output += messages[position:]
    return Rewrite(tuple(output), tuple(actions))


def strict_hoist(messages: Messages, why: str) -> Rewrite:
    """Move the text of all system messages into one leading system message.

    Where no system message has text, all messages stay as they are, empty system messages included.
    """
    texts = texts_of([message for message in messages if is_system(message)])
    if not texts:
        return keep(messages, "no system message has text, so all messages stay as they are")
    actions = [action for run in system_runs(messages) for action in _describe(run, "hoisted", why)]
    others = [message for message in messages if not is_system(message)]
    return Rewrite((_system_turn(texts), *others), tuple(actions))


def _system_turn(texts: Sequence[tuple[Message, Text]]) -> Message:
    """Return one system message with role and content only, of the first message's index."""
    first = texts[0][0]
    plain = first.data.keys() == {"role", "content"} and isinstance(first.content, str)
    if len(texts) == 1 and plain and has_role(first, "system"):
        return first
    text = join((text for _, text in texts), BETWEEN_SYSTEM_TEXTS)
    own = all(owner == first.index for _, owner in text.owners)
    return Message({"role": "system", "content": text.text}, first.index, () if own else text.pieces())


def _describe(run: Run, kind: Literal["kept", "hoisted"], why: str) -> list[Action]:
    """Return what happened to one run: to its messages without text, and to the others."""
    empty = [message for message in run.messages if not flat_text(message)]
    others = [message for message in run.messages if flat_text(message)]
    actions = [Action("dropped", indices(empty), "no text")] if empty else []
    if not others:
        return actions
    if kind == "hoisted" and not run.leads:
        return [*actions, Action("hoisted", indices(others), why)]
    if run.leads:
        why = "is first in the conversation"
    if any(has_role(message, "developer") for message in others):
        why += "; the role becomes system"
    if len(others) > 1:
        return [*actions, Action("merged", indices(others), f"neighbouring system turns are joined; {why}")]
    return [*actions, Action("kept", indices(others), why)]
