"""How a process that foreign code is confined to answers its parent (worker_process.py is the other end)."""

from __future__ import annotations

import mmap
import os
import resource
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from . import wire

#: Exit code by which the parent knows that memory ran out.
OUT_OF_MEMORY = 77
#: Answers wait for so many bytes or seconds before they are sent: each sending wakes the parent.
_MOST_WAITING = 200_000
_LONGEST_WAIT = 0.05


class Serving:
    """The worker's end of the pipes. The first argument of the process is what it shares with the parent."""

    def __init__(self) -> None:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        self._progress = mmap.mmap(int(sys.argv[1]), mmap.PAGESIZE)
        self._out = os.dup(1)
        os.dup2(2, 1)  # whatever is printed is no answer

    @contextmanager
    def task(self, number: int, seconds: float) -> Iterator[None]:
        """Do a task of a message, of which the process dies where it takes more CPU time than it may.

        The timer's default action works even in the middle of one long C call, where no Python code runs.
        """
        struct.pack_into("<Q", self._progress, 0, number + 1)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        yield
        signal.setitimer(signal.ITIMER_PROF, 0)

    def run(self, answer: Callable[[bytes], Iterable[Any]]) -> None:
        """Answer messages until stdin ends, as it does when the parent has died."""
        try:
            while (message := wire.read(sys.stdin.buffer)) is not None:
                self._send_all(answer(message))
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        except BrokenPipeError:
            os._exit(0)

    def _send_all(self, answers: Iterable[Any]) -> None:
        waiting = bytearray()
        since = time.monotonic()
        for answer in answers:
            waiting += wire.framed(wire.dumps(answer))
            if len(waiting) > _MOST_WAITING or time.monotonic() - since > _LONGEST_WAIT:
                self._send(waiting)
                waiting.clear()
                since = time.monotonic()
        self._send(waiting)

    def _send(self, data: bytearray) -> None:
        with memoryview(data) as view:
            start = 0
            while start < len(view):
                start += os.write(self._out, view[start:])
