"""A process that foreign code is confined to, as its parent sees it: started, watched, ended and replaced."""

from __future__ import annotations

import atexit
import fcntl
import mmap
import os
import select
import signal
import struct
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import InputError
from . import wire
from .serving import OUT_OF_MEMORY

#: How long a worker may be silent, as a multiple of the CPU time that it may use, and at least. On a machine
#: that is so busy that this is not enough, nothing can be told about a template.
_MOST_SILENCE = 30
_LEAST_SILENCE = 120.0
#: How often the memory of a worker is looked at that the system does not limit, in milliseconds.
_LOOK_EVERY = 20
_READ = 1 << 20
_PIPE_BYTES = 1 << 20


class WorkerDied(Exception):
    """The worker ended while it did a task.

    Args:
        why: what ended it: `too slow: …`, `too much memory: …`.
        task: number of the task within its message, from 0; None where it had not begun with one.
    """

    def __init__(self, why: str, task: int | None) -> None:
        self.why = why
        self.task = task
        super().__init__(why)


class WorkerProcess:
    """One worker, started when first needed and again after it has died.

    Args:
        module: what runs in it, as `python -m` takes it.
        watched: whether this process has to look after its memory, because the system does not limit it.
    """

    def __init__(self, module: str, *, watched: bool = False) -> None:
        self._module = module
        self._watched = watched or sys.platform == "darwin"
        self._process: subprocess.Popen[bytes] | None = None
        self._progress: mmap.mmap | None = None
        self._owner = 0
        self._started = 0
        _ALL.add(self)

    @property
    def generation(self) -> int:
        """Number of the running process: another one knows nothing of what was sent to this one."""
        return self._started

    @property
    def pid(self) -> int | None:
        """The process id; None where none runs."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process, if none is running; returns at once."""
        if self._process is not None and self._owner != os.getpid():
            self._process = None  # a fork's: its pipes belong to the process that started it
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        page = _shared_page()
        # Where a standard stream is closed, its number is free, and the worker's own stream would take it.
        shared = fcntl.fcntl(page, fcntl.F_DUPFD_CLOEXEC, 3)
        os.close(page)
        try:
            self._progress = mmap.mmap(shared, mmap.PAGESIZE)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", self._module, str(shared)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                env=os.environ | {"PYTHONSAFEPATH": "1"},
                pass_fds=(shared,),
                start_new_session=True,  # Ctrl-C reaches this process alone, which then ends the worker
            )
        finally:
            os.close(shared)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        if sys.platform == "linux":  # a long prompt then takes few turns of both processes
            fcntl.fcntl(self._process.stdout.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._owner = os.getpid()
        self._started += 1

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        if self._owner == os.getpid():
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()

    def exchange(self, message: bytes, answers: int, seconds: float, memory: int) -> Iterator[Any]:
        """Send a message, and yield the answers to its tasks.

        Args:
            message: the message.
            answers: how many answers it gets.
            seconds: CPU time that each task may take.
            memory: bytes that the process may have.

        Raises:
            WorkerDied: the process ended before it had answered all.
        """
        self.start()
        assert self._progress is not None
        struct.pack_into("<Q", self._progress, 0, 0)
        done = False
        try:
            yield from self._answers(message, answers, seconds, memory)
            done = True
        except _Silent as silent:
            began = self._began()
            why = silent.why or self._cause(seconds, memory)
            done = True
            self.close()
            raise WorkerDied(why, began) from None
        finally:
            if not done:  # interrupted: what the worker still writes must not answer the next message
                self.close()

    def _answers(self, message: bytes, answers: int, seconds: float, memory: int) -> Iterator[Any]:
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        out = process.stdout.fileno()
        watch = _Watch(process.pid, out, seconds, memory if self._watched else None)
        _write(process.stdin.fileno(), wire.framed(message), watch)
        buffer = bytearray()
        start = 0
        needed = wire.LENGTH_BYTES
        for _ in range(answers):
            while True:
                held = len(buffer) - start
                if held >= wire.LENGTH_BYTES:
                    needed = wire.LENGTH_BYTES + wire.length(
                        memoryview(buffer)[start : start + wire.LENGTH_BYTES]
                    )
                    if held >= needed:
                        break
                watch.wait()
                data = os.read(out, _READ)
                if not data:
                    raise _Silent
                if start:
                    del buffer[:start]
                    start = 0
                buffer += data
            with memoryview(buffer) as view:
                value = wire.loads(view[start + wire.LENGTH_BYTES : start + needed])
            start += needed
            needed = wire.LENGTH_BYTES
            yield value

    def _began(self) -> int | None:
        assert self._progress is not None
        task = int(struct.unpack_from("<Q", self._progress)[0])
        return task - 1 if task else None

    def _cause(self, seconds: float, memory: int) -> str:
        assert self._process is not None
        code = self._process.wait()
        if code == -signal.SIGPROF:
            return f"too slow: it did not finish within {seconds:g} s of CPU time"
        if code in (OUT_OF_MEMORY, -signal.SIGKILL):
            return out_of_memory(memory)
        if code < 0:
            return f"the process that it ran in was ended by {signal.Signals(-code).name}"
        return f"the process that it ran in ended with code {code}"


def _shared_page() -> int:
    """Return a descriptor of a page that two processes can share."""
    if sys.platform == "linux":
        shared = os.memfd_create("tplaudit")
    else:
        import tempfile

        with tempfile.TemporaryFile() as file:
            shared = os.dup(file.fileno())
    os.ftruncate(shared, mmap.PAGESIZE)
    return shared


def out_of_memory(memory: int) -> str:
    """Return what is said of a task that needs more memory than it may have."""
    return f"too much memory: it used more than {memory / 1e9:g} GB"


def does_not_start(module: str) -> InputError:
    """Return the error for a worker that ends before it does anything."""
    return InputError(
        f"the process that runs templates does not start: {sys.executable} -P -m {module}",
        fix="run that command to see why, or install tplaudit again",
    )


class _Silent(Exception):
    """No answer comes any more; `why` where that is known without asking the process."""

    def __init__(self, why: str | None = None) -> None:
        self.why = why


class _Watch:
    """Waits for a worker's output, and ends the worker where it hangs or has too much memory."""

    def __init__(self, pid: int, out: int, seconds: float, memory: int | None) -> None:
        self._pid = pid
        self._memory = memory
        self._most = max(_LEAST_SILENCE, _MOST_SILENCE * seconds)
        self._poll = select.poll()
        self._poll.register(out, select.POLLIN | select.POLLHUP)

    def wait(self) -> None:
        """Return when there is something to read. Raises _Silent where nothing will come."""
        if self._memory is None:
            if not self._poll.poll(self._most * 1000):
                self._hangs()
            return
        until = time.monotonic() + self._most
        while not self._poll.poll(_LOOK_EVERY):
            if resident_bytes(self._pid) > self._memory:
                raise _Silent(out_of_memory(self._memory))
            if time.monotonic() > until:
                self._hangs()

    def writable(self, fd: int) -> None:
        """Return when something can be written. Raises _Silent as `wait`."""
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        if not poll.poll(self._most * 1000):
            self._hangs()

    def _hangs(self) -> None:
        raise _Silent(f"the process that it ran in gave no answer for {self._most:g} s")


def _write(fd: int, data: bytes, watch: _Watch) -> None:
    with memoryview(data) as view:
        start = 0
        while start < len(view):
            try:
                start += os.write(fd, view[start:])
            except BlockingIOError:
                watch.writable(fd)
            except BrokenPipeError:
                raise _Silent from None


def resident_bytes(pid: int) -> int:
    """Return the memory that a process has; 0 where that cannot be found out."""
    if sys.platform == "darwin":
        return _resident_on_macos(pid)
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _resident_on_macos(pid: int) -> int:
    """Ask libproc for PROC_PIDTASKINFO, which begins with the virtual and the resident size."""
    import ctypes

    info = (ctypes.c_uint64 * 32)()
    library = ctypes.CDLL("/usr/lib/libproc.dylib")
    size = library.proc_pidinfo(pid, 4, ctypes.c_uint64(0), ctypes.byref(info), ctypes.sizeof(info))
    return int(info[1]) if size > 0 else 0


_ALL: weakref.WeakSet[WorkerProcess] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for worker in list(_ALL):
        worker.close()
