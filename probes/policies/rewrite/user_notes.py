"""System turns as notes within user turns: oMLX's `user_note_safe`.

Each later run of system messages becomes a bracketed note at the end of the user turn before it or at the
beginning of the one after it. Where neither can carry it, the whole request is refused and every system turn
is hoisted, also those that could have become notes (docs/servers.md, section 1; jundot/omlx,
omlx/api/utils.py).
"""

from __future__ import annotations

from typing import Any

from ...conversation import Message
from ..base import Action, Messages, Rewrite
from .system_turns import (
    BETWEEN_SYSTEM_TEXTS,
    Run,
    has_role,
    indices,
    merge_runs,
    strict_hoist,
    system_runs,
    texts_of,
)
from .texts import Text, content_text, cover, join, rebuilt

PREFIX = "[System note]\n"
SUFFIX = "\n[/System note]"
BETWEEN_NOTE_AND_HOST = "\n\n"
BOUNDARY_KEY = "_preserve_role_boundary"


def note_or_hoist(messages: Messages, *, after_tools: bool = False) -> Rewrite:
    """Turn later system runs into notes, then join the runs that are left; hoist all where one is refused."""
    notes = to_user_notes(messages, after_tools=after_tools)
    if isinstance(notes, Rewrite):
        return notes.then(lambda after: merge_runs(after, "left in place"))
    why = f"the note of message {notes.messages[0]} was refused, and one refusal hoists every system turn"
    return Rewrite(messages, (notes,)).then(lambda before: strict_hoist(before, why))


def to_user_notes(messages: Messages, *, after_tools: bool = False) -> Rewrite | Action:
    """Turn later system runs into notes, or return the `refused` action of the first that cannot be one.

    The leading run stays as it is; a later run without text vanishes.

    Args:
        messages: the conversation.
        after_tools: whether a note may also be appended to a tool result, or to a user turn made of one, as
            in flyto-mlx and as jundot/omlx#3608 proposes.
    """
    output: list[Message] = []
    actions: list[Action] = []
    position = 0
    for run in system_runs(messages):
        output += messages[position : run.start]
        position = run.stop
        texts = texts_of(run.messages)
        if run.leads:
            output += run.messages
            continue
        if not texts:
            actions.append(Action("dropped", run.indices, "no text"))
            continue
        note = join((text for _, text in texts), BETWEEN_SYSTEM_TEXTS).wrapped(PREFIX, SUFFIX)
        before = output[-1]
        after = messages[run.stop] if run.stop < len(messages) else None
        carries = can_carry_note(before) or (after_tools and carries_result(before))
        if carries and (after is None or has_role(after, "assistant")):
            output[-1] = _with_note(before, note, append=True)
            why = f"appended to the {before.role} turn before it (message {before.index})"
        elif after is not None and can_carry_note(after) and not _calls_tools(before):
            output.append(_with_note(after, note, append=False))
            position += 1
            why = f"put at the beginning of the user turn after it (message {after.index})"
        else:
            return _refusal(run, before, after)
        actions.append(Action("noted", indices(run.messages), why))
    output += messages[position:]
    return Rewrite(tuple(output), tuple(actions))


def can_carry_note(message: Message) -> bool:
    """Return whether a message is a user turn of text only, and nothing that came from a tool."""
    data = message.data
    if not has_role(message, "user") or data.get(BOUNDARY_KEY):
        return False
    if data.get("tool_calls") or data.get("tool_call_id") or data.get("tool_responses"):
        return False
    return message.content is None or _is_text_only(message.content)


def carries_result(message: Message) -> bool:
    """Return whether a message is a tool result, or a user turn made of one, and text only."""
    from_tool = has_role(message, "tool") or (
        has_role(message, "user") and bool(message.data.get(BOUNDARY_KEY))
    )
    return from_tool and _is_text_only(message.content)


def _is_text_only(content: Any) -> bool:
    if isinstance(content, list):
        return all(_is_text_part(part) for part in content)
    return isinstance(content, str)


def _is_text_part(part: Any) -> bool:
    if not isinstance(part, dict) or part.get("type", "text") != "text":
        return False
    text = part.get("text")
    return text is None or isinstance(text, str)


def _with_note(host: Message, note: Text, *, append: bool) -> Message:
    """Return a user turn with a note after or before its text, or as its text where it has none."""
    content = host.content
    if not isinstance(content, list):
        text = _beside(content_text(host, None, content or ""), note, append)
        return rebuilt(host, text.text, text.pieces())
    if not content:
        return rebuilt(host, [{"type": "text", "text": note.text}], note.pieces(0))
    part = len(content) - 1 if append else 0
    text = _beside(content_text(host, part, content[part].get("text") or ""), note, append)
    parts = [*content[:part], {**content[part], "text": text.text}, *content[part + 1 :]]
    others = cover(host)
    pieces = (
        *(piece for piece in others if piece.part is not None and piece.part < part),
        *text.pieces(part),
        *(piece for piece in others if piece.part is not None and piece.part > part),
    )
    return rebuilt(host, parts, pieces)


def _beside(host: Text, note: Text, append: bool) -> Text:
    if not host:
        return note
    return join((host, note) if append else (note, host), BETWEEN_NOTE_AND_HOST)


def _calls_tools(message: Message) -> bool:
    return has_role(message, "assistant") and bool(message.data.get("tool_calls"))


def _refusal(run: Run, before: Message, after: Message | None) -> Action:
    if _calls_tools(before):
        return Action("refused", run.indices, "no note after an assistant that calls tools")
    why = f"no user turn to carry the note: {_name(before)} before it, {_name(after)} after it"
    return Action("refused", run.indices, why)


def _name(message: Message | None) -> str:
    if message is None:
        return "nothing"
    if has_role(message, "user") and not can_carry_note(message):
        return "a user turn that came from a tool or is not text only"
    return f"a turn of role {message.data.get('role')}"
