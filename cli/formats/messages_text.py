"""The messages of a request before and after a policy, as one list of what changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.text import Text

from ...probes.attribution.text_spans import owned_texts
from ...probes.conversation import TOP_LEVEL, Message, Request
from ...probes.templates.rendering import REASONING_KEYS
from .visible import colour_of, listed, one_line, visible

#: Unchanged messages that are shown around changed ones, and characters shown of a text.
_AROUND, _SHOWN = 2, 100
_STYLES = {"  ": "dim", "~ ": "yellow", "- ": "red", "+ ": "green"}


@dataclass(frozen=True, slots=True)
class _Entry:
    """One line of the list: its sign, the message, and the keys that changed where the text did not."""

    mark: str
    message: Message
    changed: tuple[str, ...] = ()


def draw_messages(before: Request, after: Sequence[Message], console: Console, *, full: bool) -> None:
    """Print the client's messages (-), those that the template gets (+), and those that are both.

    A message with the same role and text but with other keys is marked with a tilde. The numbers are the
    client's: a message that was built from several has several.
    """
    for unchanged, group in groupby(_entries(_given(before), after), key=lambda entry: entry.mark == "  "):
        part = list(group)
        hidden = len(part) - 2 * _AROUND
        if full or not unchanged or hidden < 2:
            _draw(part, console, full)
            continue
        _draw(part[:_AROUND], console, full)
        console.print(Text(f"    … {hidden} unchanged messages …", "dim italic"))
        _draw(part[-_AROUND:], console, full)


def _given(request: Request) -> list[Message]:
    top = [Message({"role": "system", "content": request.system}, TOP_LEVEL)] if request.system else []
    return [*top, *request.messages]


def _entries(before: Sequence[Message], after: Sequence[Message]) -> Iterator[_Entry]:
    numbers: dict[str, int] = {}
    old_keys, new_keys = (
        [numbers.setdefault(repr(each), len(numbers)) for each in side] for side in (before, after)
    )
    matcher = SequenceMatcher(None, old_keys, new_keys, autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            yield from (_Entry("  ", message) for message in after[c:d])
            continue
        old = {message.index: message for message in before[a:b]}
        new = [_changed(old.get(message.index), message) for message in after[c:d]]
        reshaped = {entry.message.index for entry in new if entry.mark == "~ "}
        yield from (_Entry("- ", message) for index, message in old.items() if index not in reshaped)
        yield from new


def _changed(old: Message | None, new: Message) -> _Entry:
    """Return an entry for a message that the template gets and the client did not send like this."""
    if old is None or (old.data.get("role"), [*_texts(old)]) != (new.data.get("role"), [*_texts(new)]):
        return _Entry("+ ", new)
    names = dict.fromkeys((*old.data, *new.data))
    missing = object()
    changed = (name for name in names if old.data.get(name, missing) != new.data.get(name, missing))
    return _Entry("~ ", new, tuple(changed))


def _draw(entries: Sequence[_Entry], console: Console, full: bool) -> None:
    for entry in entries:
        message, style = entry.message, _STYLES[entry.mark]
        origins = message.origins
        role = str(message.data.get("role") or message.data.get("type") or "")
        line = Text().append(f"{entry.mark}{listed(origins[:1]):>5} {visible(role):<10} ", style)
        texts = list(_texts(message))
        said = [_rest(message.data)]
        if entry.changed:
            said.append(f"changed: {visible(', '.join(entry.changed))}")
        if len(texts) == 1:
            text, owner = texts[0]
            line.append(_shown(text, full), colour_of(owner)).append("  ")
        elif len(origins) > 1:
            said.insert(0, f"text of messages {listed(origins)}")
        line.append("; ".join(filter(None, said)), "dim")
        line.rstrip()
        console.print(line, soft_wrap=True)
        for text, owner in texts if len(texts) > 1 else ():
            line = Text().append(entry.mark + " " * 6, style).append(f"{listed([owner]):>4}: ", "dim")
            console.print(line.append(_shown(text, full), colour_of(owner)), soft_wrap=True)


def _texts(message: Message) -> Iterator[tuple[str, int]]:
    for text, owner in owned_texts(message):
        if text.strip():
            yield text.strip("\n"), owner


def _shown(text: str, full: bool) -> str:
    return visible(text) if full else one_line(text, _SHOWN)


def _rest(data: Mapping[str, Any]) -> str:
    """Say what else a message has besides its text."""
    said = []
    reasoning = next((data[key] for key in REASONING_KEYS if data.get(key)), None)
    if isinstance(reasoning, str):
        said.append(f"reasoning: {len(reasoning):,} characters")
    calls = data.get("tool_calls")
    if isinstance(calls, list):
        said.append(f"calls {', '.join(_call(call) for call in calls)}")
    content = data.get("content", data.get("output"))
    if isinstance(content, list):
        kinds = [str(part.get("type")) for part in content if isinstance(part, Mapping)]
        said += [kind for kind in kinds if kind not in ("text", "input_text", "output_text")]
    elif isinstance(content, Mapping):
        said.append("an object")
    elif isinstance(data.get("type"), str) and content is None:
        said.append(str(data.get("name") or data["type"]))
    elif content is None:
        said.append("content null" if "content" in data else "no content")
    return visible("; ".join(said))


def _call(call: Any) -> str:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return "?"
    as_text = " (arguments as text)" if isinstance(function.get("arguments"), str) else ""
    return f"{function.get('name')}{as_text}"
