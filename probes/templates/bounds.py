"""What makes it safe to render a template inside this process: no single step of it can run away.

Python can stop a loop, but not a step written in C: `9**9**9`, the building of a 10 GB string, the comparison
of two lists that hold the same thing a million times over. So two things are done while a template runs here:
- a timer looks at the clock and at the memory of the process between any two steps (`run`);
- each step whose result may be much larger than its operands, or that may take much longer than reading them,
  asks here first (the other functions; jinja.py calls them).

A step that is refused raises Unbounded, which says nothing bad about a template: the render starts again in a
child process (isolation.py), which has no need of these checks because it can be killed.
"""

from __future__ import annotations

import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from types import FrameType
from typing import Any, TypeVar

from ..errors import RenderLimit

#: Most characters of a text that one step may build.
LARGEST_TEXT = 4_000_000
#: Most bits of the operands of an integer's multiplication, division or power, which cost their square.
LARGEST_INTEGER = 100_000
#: Most characters, each item counting as `_ITEM` of them, of all lists and dicts that one render builds.
MOST_BUILT = 32_000_000
#: Growth of the process's peak memory, in bytes, at which a render moves to the child.
MOST_MEMORY = 256_000_000
#: Seconds between two looks at the clock and the memory.
TICK = 0.02

_ITEM = 32
_CONTAINERS: tuple[Any, ...] = (list, tuple, dict, type({}.keys()), type({}.values()), type({}.items()))

Result = TypeVar("Result")


class Unbounded(BaseException):
    """A step that cannot be bounded inside this process. Not an Exception: nothing may swallow it."""


class _OutOfTime(BaseException):
    """The timer's way out of the middle of a render."""


@dataclass(slots=True)
class _Meter:
    """How much one render may still build."""

    left: int = MOST_BUILT


_meter: ContextVar[_Meter | None] = ContextVar("meter", default=None)


def can_run() -> bool:
    """Tell whether `run` works here: signals reach only the main thread."""
    return threading.current_thread() is threading.main_thread()


def run(function: Callable[[], Result], seconds: float) -> Result:
    """Call a function with the timer running and every step metered. Main thread only.

    Raises:
        RenderLimit: it took longer.
        Unbounded: a step was refused, or the process grew by more than MOST_MEMORY bytes.
    """
    deadline = time.monotonic() + seconds
    most = _peak_memory() + MOST_MEMORY
    quiet_until = 0.0

    def tick(number: int, frame: FrameType | None) -> None:
        nonlocal quiet_until
        now = time.monotonic()
        if now < quiet_until:
            return  # it has spoken: what cleans up must not be interrupted
        quiet_until = now + 1.0
        if now > deadline:
            raise _OutOfTime
        if _peak_memory() > most:
            raise Unbounded
        quiet_until = 0.0

    token = _meter.set(_Meter())
    handler = signal.signal(signal.SIGALRM, tick)
    timer = (0.0, 0.0)
    try:
        try:
            timer = signal.setitimer(signal.ITIMER_REAL, TICK, TICK)
            return function()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _OutOfTime:
        raise RenderLimit(f"the template did not finish within {seconds:g} s") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if handler is None else handler)
        signal.setitimer(signal.ITIMER_REAL, *timer)
        _meter.reset(token)


def _peak_memory() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def metered() -> bool:
    """Tell whether a template is running in this process, so that steps have to ask."""
    return _meter.get() is not None


def refuse() -> None:
    """Refuse a step that nothing is known about."""
    if _meter.get() is not None:
        raise Unbounded


def charge(value: Any, times: int = 1) -> None:
    """Count a list or dict that a step built, with all that it holds, however often it holds it.

    So no value holds more than MOST_BUILT and the conversation, and comparing, sorting or hashing one is
    bounded.
    """
    if not isinstance(value, _CONTAINERS):
        return
    meter = _meter.get()
    if meter is not None:
        meter.left -= size(value, meter.left) * max(times, 0)
        if meter.left < 0:
            raise Unbounded


def built(value: Result) -> Result:
    """Charge a value and return it; compiled templates call it on each list, tuple and dict they write."""
    charge(value)
    return value


def check_length(characters: int) -> None:
    """Refuse to build a text of more than LARGEST_TEXT characters."""
    if characters > LARGEST_TEXT and _meter.get() is not None:
        raise Unbounded


def check_text(value: Any) -> None:
    """Refuse to write a list or dict as a text that may be too long."""
    if isinstance(value, _CONTAINERS) and _meter.get() is not None:
        size(value, LARGEST_TEXT)


def check_integers(left: int, right: int, power: bool) -> None:
    """Refuse arithmetic on huge integers."""
    bits = left.bit_length() * max(right, 1) if power else left.bit_length() + right.bit_length()
    if bits > LARGEST_INTEGER and _meter.get() is not None:
        raise Unbounded


def text(value: Any) -> str:
    """Return `str(value)`."""
    if type(value) is str:
        return value
    check_text(value)
    return str(value)


def concatenate(parts: Iterable[str]) -> str:
    """Return `"".join(parts)`."""
    parts = list(parts)
    check_length(sum(map(len, parts)))
    return "".join(parts)


def join_texts(values: Iterable[Any]) -> str:
    """Write values one behind the other: Jinja's `~`."""
    return concatenate(value if type(value) is str else text(value) for value in values)


def check_join(values: list[Any], separator: Any) -> None:
    """Refuse a join whose result may be too long."""
    if _meter.get() is not None:
        check_text(separator)
        characters = sum(
            len(value) if isinstance(value, str) else size(value, LARGEST_TEXT) for value in values
        )
        check_length(characters + len(values) * len(str(separator)))


def check_replace(value: Any, old: Any, new: Any) -> None:
    """Refuse a replacement whose result may be too long."""
    if _meter.get() is None:
        return
    for operand in (value, old, new):
        check_text(operand)
    value, old, new = str(value), str(old), str(new)
    times = len(value) + 1
    if times * len(new) > LARGEST_TEXT and old:
        times = value.count(old)
    check_length(len(value) + times * len(new))


def check_json(value: Any, indent: Any, separators: Any) -> None:
    """Refuse a JSON text that may be too long."""
    if _meter.get() is None:
        return
    characters = size(value, LARGEST_TEXT)
    margin = indent if isinstance(indent, int) else len(indent or "")
    between = len(str(separators)) if separators else 2
    deepest = _depth(value) if margin > 0 else 0
    check_length(characters + characters // _ITEM * (between + deepest * margin))


def size(value: Any, most: int) -> int:
    """Count the characters and items of a value, shared parts as often as they occur.

    Args:
        value: what a template holds.
        most: where to stop.

    Raises:
        Unbounded: there are more than `most`.
    """
    total = 0
    open_ = [value]
    while open_:
        value = open_.pop()
        total += _ITEM
        if type(value) is str or isinstance(value, str):
            total += len(value)
        elif type(value) is dict or isinstance(value, dict):
            open_.extend(value)
            open_.extend(value.values())
        elif isinstance(value, _CONTAINERS):
            open_.extend(value)
        if total > most:
            raise Unbounded
    return total


def _depth(value: Any) -> int:
    depth = 0
    level = [value]
    while level:
        depth += 1
        level = [
            item
            for part in level
            if isinstance(part, _CONTAINERS)
            for item in (part.values() if isinstance(part, dict) else part)
        ]
    return depth
