"""Several processes for independent work, which end with this one where it is interrupted.

They are started anew as `python -P -m`: neither the current folder nor the main module is imported, and this
process may itself be a daemonic worker of another program. One that dies takes only its own item with it.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

#: What runs in each process.
_MODULE = "tplaudit.probes.process_pool"


@dataclass(frozen=True, slots=True)
class LostItem:
    """Stands for the result of an item whose process died.

    Attributes:
        reason: what ended the process, one clause for people.
    """

    reason: str


@contextmanager
def parallel_map(
    function: Callable[[Item], Result], items: Sequence[Item], processes: int
) -> Iterator[Iterator[Result | LostItem]]:
    """Start the work on all items, and yield an iterator of the results in their order.

    What the function raises, the iterator raises in its place.

    Args:
        function: what is done with an item; it can be pickled.
        items: what it is done with.
        processes: the most processes beside this one.
    """
    pool = _Pool(function, items, processes)
    try:
        yield pool.results()
    finally:
        pool.close()


class _Pool:
    """Threads that hand the items to a process each."""

    def __init__(self, function: Callable[[Any], Any], items: Sequence[Any], processes: int) -> None:
        self._function = pickle.dumps(function)
        self._items: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._slots: list[queue.SimpleQueue[tuple[bool, Any]]] = []
        for number, item in enumerate(items):
            self._items.put((number, item))
            self._slots.append(queue.SimpleQueue())
        self._lock = threading.Lock()
        self._closed = False
        self._running: set[subprocess.Popen[bytes]] = set()
        for _ in range(min(processes, len(items))):
            threading.Thread(target=self._serve, daemon=True).start()

    def results(self) -> Iterator[Any]:
        """Yield the results in the order of the items."""
        for slot in self._slots:
            succeeded, value = slot.get()
            if not succeeded:
                raise value
            yield value

    def close(self) -> None:
        """End all processes."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for process in running:
            process.kill()
            process.wait()

    def _serve(self) -> None:
        process: subprocess.Popen[bytes] | None = None
        while True:
            try:
                number, item = self._items.get_nowait()
            except queue.Empty:
                break
            try:
                process = process or self._start()
                if process is None:
                    return
                outcome = self._ask(process, item)
            except (OSError, EOFError, pickle.UnpicklingError):
                outcome = (True, LostItem(_death(process)))
                self._forget(process)
                process = None
            except Exception as error:  # such as an item that cannot be pickled
                outcome = (False, error)
            self._slots[number].put(outcome)
        if process is not None and process.stdin is not None:
            process.stdin.close()
            process.wait()
            self._forget(process)

    def _start(self) -> subprocess.Popen[bytes] | None:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONSAFEPATH": "1"},
            start_new_session=True,  # Ctrl-C reaches the first process alone, which then ends the others
        )
        with self._lock:
            if self._closed:
                process.kill()
                process.wait()
                return None
            self._running.add(process)
        _send(process.stdin, self._function)
        return process

    def _ask(self, process: subprocess.Popen[bytes], item: Any) -> tuple[bool, Any]:
        _send(process.stdin, pickle.dumps(item))
        outcome: tuple[bool, Any] = pickle.loads(_receive(process.stdout))
        return outcome

    def _forget(self, process: subprocess.Popen[bytes] | None) -> None:
        if process is None:
            return
        with self._lock:
            self._running.discard(process)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def _death(process: subprocess.Popen[bytes] | None) -> str:
    if process is None:
        return "its process could not be started"
    process.kill()
    code = process.wait()
    if code < 0:
        return f"its process was ended by {signal.Signals(-code).name}"
    return f"its process ended with code {code}"


def _send(stream: IO[bytes] | None, data: bytes) -> None:
    assert stream is not None
    stream.write(len(data).to_bytes(8, "big") + data)
    stream.flush()


def _receive(stream: IO[bytes] | None) -> bytes:
    assert stream is not None
    header = stream.read(8)
    data = stream.read(int.from_bytes(header, "big"))
    if len(header) < 8 or len(data) < int.from_bytes(header, "big"):
        raise EOFError
    return data


def _work() -> None:
    """Do item after item until stdin ends; where it ends in the middle of one, the parent has died."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever is printed is no result
    items: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        try:
            while True:
                items.put(_receive(sys.stdin.buffer))
        except EOFError:
            os._exit(0)  # this process's own children end when their stdin does

    threading.Thread(target=read, daemon=True).start()
    function = pickle.loads(items.get())
    while True:
        item = pickle.loads(items.get())
        try:
            outcome: tuple[bool, Any] = (True, function(item))
        except Exception as error:
            outcome = (False, error)
        _send(out, _pickled(outcome))


def _pickled(outcome: tuple[bool, Any]) -> bytes:
    try:
        return pickle.dumps(outcome)
    except Exception:
        return pickle.dumps((False, RuntimeError(f"{type(outcome[1]).__name__}: {outcome[1]}")))


if __name__ == "__main__":
    _work()
