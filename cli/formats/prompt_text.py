"""A prompt on a terminal: who owns which line, special tokens highlighted, long texts folded."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from ...probes.attribution.text_spans import TextSpan
from .visible import colour_of, visible

#: Lines of one message's text that are shown at its beginning and its end.
_HEAD, _TAIL = 4, 2
#: Characters shown of a long line, and the fewest that are left out.
_LONGEST, _LEAST = 400, 100


def draw_prompt(
    prompt: str, spans: Sequence[TextSpan], special: Sequence[str], console: Console, *, full: bool
) -> None:
    """Print a prompt. In front of each line are the messages whose texts are in it."""
    owners = _Styles([(span.start, span.end, colour_of(span.message)) for span in spans])
    pattern = re.compile("|".join(map(re.escape, special)))
    tokens = _Styles([(*match.span(), "reverse") for match in pattern.finditer(prompt)] if special else [])

    def part(start: int, end: int) -> Text:
        text = Text(visible(prompt[start:end]))
        for styles in (owners, tokens):
            for first, last, style in styles.within(start, end):
                text.stylize(style, first - start, last - start)
        return text

    lines = _lines(prompt, spans)
    for start, end, messages in lines if full else _folded(lines):
        gutter = ",".join("system" if message < 0 else str(message) for message in messages[:3])
        line = Text().append(f"{gutter:>8} │ ", "dim")
        if end < 0:
            line.append(f"… {-end:,} more lines of this text …", "dim italic")
        elif full or end - start <= _LONGEST + _LEAST:
            line.append_text(part(start, end))
        else:
            half = _LONGEST // 2
            line.append_text(part(start, start + half))
            line.append(f" … {end - start - _LONGEST:,} more characters … ", "dim italic")
            line.append_text(part(end - half, end))
        console.print(line, soft_wrap=True)


class _Styles:
    """Stretches of a text with a style each, sorted and apart from each other."""

    def __init__(self, stretches: Sequence[tuple[int, int, str]]) -> None:
        self._stretches = stretches
        self._ends = [end for _, end, _ in stretches]

    def within(self, start: int, end: int) -> Iterator[tuple[int, int, str]]:
        """Yield what is between two offsets, cropped to them."""
        for at in range(bisect_right(self._ends, start), len(self._stretches)):
            first, last, style = self._stretches[at]
            if first >= end:
                return
            yield max(first, start), min(last, end), style


def _lines(prompt: str, spans: Sequence[TextSpan]) -> list[tuple[int, int, tuple[int, ...]]]:
    """Return the lines of a prompt: start, end without the line feed, and the messages with text in it."""
    found = []
    start = first = 0
    for line in prompt.split("\n"):
        end = start + len(line)
        while first < len(spans) and spans[first].end <= start:
            first += 1
        owners: list[int] = []
        for span in spans[first:]:
            if span.start >= max(end, start + 1):
                break
            owners.append(span.message)
        found.append((start, end, tuple(dict.fromkeys(owners))))
        start = end + 1
    return found


def _folded(
    lines: Sequence[tuple[int, int, tuple[int, ...]]],
) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yield the lines, with the middle of long texts replaced by one entry whose end is minus its lines."""
    position = 0
    while position < len(lines):
        owners = lines[position][2]
        end = position
        while owners and end < len(lines) and lines[end][2] == owners:
            end += 1
        end = max(end, position + 1)
        hidden = end - position - _HEAD - _TAIL
        if hidden > 1:
            yield from lines[position : position + _HEAD]
            yield 0, -hidden, owners
            yield from lines[end - _TAIL : end]
        else:
            yield from lines[position:end]
        position = end
