"""The lines in which servers' logs say how much of a prompt they reused.

Where the lines come from: mlx-lm 0.32.2 (`server.py`), vllm-mlx 0.6.0 and Rapid-MLX 0.16.10 (`scheduler.py`,
and the simple engine's), mlx-vlm 0.7.10, oMLX 0.5.3, llama.cpp b11434 (`server-context.cpp`). Only numbers
are taken from them. The lines of one request belong together by its id, or by their order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

#: What is longer is no line of a log that says anything here.
_LONGEST = 4096


@dataclass(frozen=True, slots=True)
class LogEntry:
    """What a log says of one request. All but the lines is None where it does not say it.

    Attributes:
        lines: the numbers of its lines, counted from 1.
        prompt_tokens: length of the prompt.
        reused: tokens of it that came from the cache.
        prefilled: tokens of it that were computed.
    """

    lines: tuple[int, ...]
    prompt_tokens: int | None = None
    reused: int | None = None
    prefilled: int | None = None

    @property
    def says_reuse(self) -> bool:
        """Whether it says how much was reused, if the prompt's length is known."""
        return self.reused is not None or self.prefilled is not None


@dataclass(slots=True)
class _Open:
    """An entry while its lines are read."""

    lines: list[int] = field(default_factory=list)
    prompt_tokens: int | None = None
    reused: int | None = None
    prefilled: int | None = None
    generated: int | None = None

    def entry(self) -> LogEntry:
        prompt, reused, prefilled = self.prompt_tokens, self.reused, self.prefilled
        if prompt is None and reused is not None and prefilled is not None:
            prompt = reused + prefilled
        if reused is None and prompt is not None and prefilled is not None and prefilled <= prompt:
            reused = prompt - prefilled
        return LogEntry(tuple(self.lines), prompt, reused, prefilled)


class _Entries:
    """The entries of a log, in the order of their first lines."""

    def __init__(self) -> None:
        self.all: list[_Open] = []
        self.task = ""
        self.large: _Open | None = None
        self._open: dict[str, _Open] = {}

    def at(self, key: str, line: int) -> _Open:
        """Return the entry that a request's lines go into, and note the line."""
        found = self._open.get(key)
        if found is None:
            found = self._open[key] = _Open()
            self.all.append(found)
        if line not in found.lines:
            found.lines.append(line)
        return found

    def end(self, key: str) -> None:
        """Let the next line with that key begin another entry."""
        self._open.pop(key, None)


def _progress(entries: _Entries, found: re.Match[str], line: int) -> None:
    """mlx-lm: how far a prefill is; the second number is all that it computes. The last has both equal."""
    key = f"progress {found['all']}"
    entries.at(key, line).prefilled = int(found["all"])
    if found["done"] == found["all"]:
        entries.end(key)


def _fetched(entries: _Entries, found: re.Match[str], line: int) -> None:
    """vllm-mlx's and Rapid-MLX's batched engines: what the lookup found."""
    entry = entries.at(f"request {found['id']}", line)
    entry.prompt_tokens = int(found["prompt"])
    if entry.prefilled is None:
        entry.reused = int(found["cached"] or 0)


def _scheduled(entries: _Entries, found: re.Match[str], line: int) -> None:
    """The same engines: what really runs, which counts more than the lookup."""
    entry = entries.at(f"request {found['id']}", line)
    entry.prompt_tokens, entry.prefilled, entry.reused = int(found["prompt"]), int(found["prefill"]), None


def _system(entries: _Entries, found: re.Match[str], line: int) -> None:
    """vllm-mlx's simple engine: the snapshot of the system prefix; it says nothing where there is none."""
    entry = entries.at("system", line)
    entry.reused, entry.prefilled = int(found["cached"]), int(found["prefill"])
    entries.end("system")


def _completed(entries: _Entries, found: re.Match[str], line: int) -> None:
    """mlx-vlm: the end of a prefill."""
    entry = entries.at("prefill", line)
    entry.prompt_tokens, entry.reused = int(found["prompt"]), int(found["cached"])
    entries.end("prefill")


def _large(entries: _Entries, found: re.Match[str], line: int) -> None:
    """oMLX: the warning of a large prefill."""
    entry = entries.large = entries.at("large", line)
    entry.prefilled, entry.prompt_tokens = int(found["prefill"]), int(found["prompt"])
    entry.reused = int(found["cached"])
    entries.end("large")


def _answered(entries: _Entries, found: re.Match[str], line: int) -> None:
    """oMLX: the end of a request; what was reused stands in the warning before it, if there was one."""
    prompt = int(found["prompt"])
    if entries.large is not None and entries.large.prompt_tokens == prompt:
        entries.large.lines.append(line)
    else:
        entries.at("answer", line).prompt_tokens = prompt
        entries.end("answer")
    entries.large = None


def _task(entries: _Entries, found: re.Match[str], line: int) -> None:
    """llama.cpp: whose timings follow, on this line or the next ones."""
    entries.task = found["task"]


def _prompt_eval(entries: _Entries, found: re.Match[str], line: int) -> None:
    """llama.cpp: the prefill."""
    entries.at(f"task {entries.task}", line).prefilled = int(found["prefill"])


def _released(entries: _Entries, found: re.Match[str], line: int) -> None:
    """llama.cpp: what the slot holds in the end: the prompt and all generated tokens but the last."""
    key = f"task {found['task']}"
    entry = entries.at(key, line)
    if entry.prompt_tokens is None and entry.generated is not None:
        entry.prompt_tokens = int(found["all"]) - entry.generated + 1
    entries.end(key)


def _eval(entries: _Entries, found: re.Match[str], line: int) -> None:
    """llama.cpp: how many tokens were generated."""
    entries.at(f"task {entries.task}", line).generated = int(found["generated"])


def _new_prompt(entries: _Entries, found: re.Match[str], line: int) -> None:
    """llama.cpp: the prompt's length, where the log is verbose enough to say it at once."""
    entries.at(f"task {found['task']}", line).prompt_tokens = int(found["prompt"])


_Read = Callable[[_Entries, "re.Match[str]", int], None]
#: What a line contains, and what it means. A line may be several of them.
_PATTERNS: tuple[tuple[re.Pattern[str], _Read], ...] = tuple(
    (re.compile(pattern), read)
    for pattern, read in (
        (r"Prompt processing progress: (?P<done>\d+)/(?P<all>\d+)", _progress),
        (
            r"\[cache_fetch\] request=(?P<id>\S+) (?:HIT|MISS) prompt_tokens=(?P<prompt>\d+)"
            r"(?: cached=(?P<cached>\d+))?",
            _fetched,
        ),
        (
            r"\[schedule\] request=(?P<id>\S+) uid=\S+ prompt_tokens=(?P<prompt>\d+) "
            r"tokens_to_prefill=(?P<prefill>\d+)",
            _scheduled,
        ),
        (
            r"System KV cache HIT \(\w+\): reusing (?P<cached>\d+) tokens, prefilling (?P<prefill>\d+) new",
            _system,
        ),
        (
            r"Prefill completed: request=\S+ prompt_tokens=(?P<prompt>\d+) cached_tokens=(?P<cached>\d+)",
            _completed,
        ),
        (r"re-prefills (?P<prefill>\d+) of (?P<prompt>\d+) tokens \(reused (?P<cached>\d+)\)", _large),
        (r"Chat completion: \d+ tokens in .{0,80}?, prompt: (?P<prompt>\d+)", _answered),
        (r"slot +print_timing: id +\d+ \| task (?P<task>-?\d+) \|", _task),
        (r"prompt eval time = +[\d.]+ ms / +(?P<prefill>\d+) tokens", _prompt_eval),
        (r"(?<!prompt )eval time = +[\d.]+ ms / +(?P<generated>\d+) tokens", _eval),
        (r"task (?P<task>-?\d+) \| new prompt, .{0,80}?n(?:_prompt)?_tokens = (?P<prompt>\d+)", _new_prompt),
        (
            r"slot +release: id +\d+ \| task (?P<task>-?\d+) \| stop processing: n_tokens = (?P<all>\d+)",
            _released,
        ),
    )
)


def read_lines(lines: Iterable[tuple[int, str]]) -> tuple[LogEntry, ...]:
    """Return what the lines of a log say of each request, in the order of their first lines.

    Args:
        lines: the lines with their numbers, counted from 1.
    """
    entries = _Entries()
    for number, text in lines:
        for pattern, read in _PATTERNS:
            if found := pattern.search(text[:_LONGEST]):
                read(entries, found, number)
    return tuple(each.entry() for each in entries.all)
