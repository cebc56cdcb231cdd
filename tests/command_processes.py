"""Commands of `tplaudit`, each in a process of its own that does not have to import the command line.

Importing it takes longer than most commands do. So one process for each test process imports it, and forks
for each command: the command has its own streams, folder, environment and exit code, and ends as any Python
does. Commands from a cold start are those of tests/cli/test_examples.py, one for each command, and of all
tests that start `python -m tplaudit` themselves.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import io
import json
import os
import pkgutil
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

#: Variables that are read when a command runs. Others are read when Python starts or imports a library.
_READ_LATE = re.compile(
    r"TPLAUDIT_\w+|_TPLAUDIT_COMPLETE|_TYPER_COMPLETE\w+|COMP_\w+|COLUMNS|NO_COLOR|GITHUB_STEP_SUMMARY"
    r"|PYTEST_CURRENT_TEST"
)
#: What is imported beside all of the command line, where it is installed.
_LIBRARIES = (
    *("typer._adapters", "typer.rich_utils", "rich.markdown", "rich.progress", "rich.table"),
    "tokenizers",
)
#: What is not: it imports mlx, which only the process that runs a model may do, or is a program of its own.
_NOT_IMPORTED = re.compile(
    r"tplaudit\.probes\.(engine|templates\.worker|templates\.llamacpp_worker)\b.*|.*__main__"
)
_LENGTH_BYTES = 8


def run_command(
    *arguments: object,
    stdin: str = "",
    timeout: float = 40,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `tplaudit` with arguments, as `python -m tplaudit.cli.app` does, and return what came of it.

    Args:
        arguments: the words behind `tplaudit`.
        stdin: what it may read.
        timeout: seconds after which it is killed. Raises subprocess.TimeoutExpired then.
        cwd: the folder it runs in; by default this process's.
        environment: variables beside those of this process.
    """
    words = list(map(str, arguments))
    variables = {**os.environ, **(environment or {})}
    commands = _commands() if sys.platform == "linux" else None
    if commands is not None and commands.may_run(variables):
        return commands.run(words, stdin, timeout, cwd or Path.cwd(), variables)
    return subprocess.run(
        [sys.executable, "-m", "tplaudit.cli.app", *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=cwd,
        env=variables,
        check=False,
    )


@functools.cache
def _commands() -> _Commands:
    """Return the one of this process."""
    return _Commands()


class _Commands:
    """The process that forks, as the tests see it."""

    def __init__(self) -> None:
        self._variables = dict(os.environ)
        self._socket, theirs = socket.socketpair()
        # Streams are pipes, as a command's are: Python looks at what they can do when it starts. Libraries of
        # matrices start no threads.
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            pass_fds=(theirs.fileno(),),
        )
        theirs.close()
        atexit.register(self._close)

    def may_run(self, variables: Mapping[str, str]) -> bool:
        """Whether a process with these variables would import the same as the one that forks has."""
        names = self._variables.keys() | variables.keys()
        changed = {name for name in names if self._variables.get(name) != variables.get(name)}
        return all(_READ_LATE.fullmatch(name) for name in changed)

    def run(
        self, words: list[str], stdin: str, timeout: float, cwd: Path, variables: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        request = json.dumps({"words": words, "cwd": str(cwd), "variables": dict(variables)}).encode()
        (theirs_in, ours_in), (ours_out, theirs_out), (ours_err, theirs_err) = os.pipe(), os.pipe(), os.pipe()
        theirs = [theirs_in, theirs_out, theirs_err]
        socket.send_fds(self._socket, [len(request).to_bytes(_LENGTH_BYTES)], theirs)
        self._socket.sendall(request)
        for descriptor in theirs:
            os.close(descriptor)
        with ThreadPoolExecutor(3) as threads:
            out, err = threads.submit(_read, ours_out), threads.submit(_read, ours_err)
            threads.submit(_write, ours_in, stdin.encode())
            process = self._number()
            try:
                out.result(timeout)
                err.result(timeout)
            except TimeoutError:
                os.kill(process, signal.SIGKILL)
                self._number()
                raise subprocess.TimeoutExpired(["tplaudit", *words], timeout) from None
            code = os.waitstatus_to_exitcode(self._number())
        return subprocess.CompletedProcess(
            ["tplaudit", *words], code, _text(out.result()), _text(err.result())
        )

    def _number(self) -> int:
        """Receive the number of a process, or how it ended."""
        data = self._socket.recv(_LENGTH_BYTES, socket.MSG_WAITALL)
        if len(data) < _LENGTH_BYTES:
            raise RuntimeError(f"the process that forks ended: {self._process.communicate()[1].decode()}")
        return int.from_bytes(data)

    def _close(self) -> None:
        self._socket.close()
        self._process.communicate()


def _read(descriptor: int) -> bytes:
    with open(descriptor, "rb") as file:
        return file.read()


def _write(descriptor: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), open(descriptor, "wb") as file:
        file.write(data)


def _text(data: bytes) -> str:
    """Return what `text=True` makes of output."""
    return io.TextIOWrapper(io.BytesIO(data)).read()


# What follows runs in the process that forks.


def _import_all() -> None:
    import tplaudit.cli
    import tplaudit.probes

    for package in (tplaudit.cli, tplaudit.probes):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not _NOT_IMPORTED.fullmatch(module.name):
                importlib.import_module(module.name)
    for name in _LIBRARIES:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)


def _fork_until_closed(requests: socket.socket) -> list[str]:
    """Return the words of a command in each process that is forked for one; ends where no more will come."""
    while True:
        header, descriptors, *_ = socket.recv_fds(requests, _LENGTH_BYTES, 3)
        if not header:
            sys.exit()
        request = json.loads(requests.recv(int.from_bytes(header), socket.MSG_WAITALL))
        threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208
        assert threads == 1, f"{threads} threads"
        process = os.fork()
        if process == 0:
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
                os.close(descriptor)
            requests.close()
            os.chdir(request["cwd"])
            os.environ.clear()
            os.environ.update(request["variables"])
            return request["words"]
        for descriptor in descriptors:
            os.close(descriptor)
        requests.sendall(process.to_bytes(_LENGTH_BYTES))
        requests.sendall(os.waitpid(process, 0)[1].to_bytes(_LENGTH_BYTES))


def _serve() -> None:
    _import_all()
    gc.freeze()  # what is there before a fork is looked at by no collection after it
    from tplaudit.cli import app

    words = _fork_until_closed(socket.socket(fileno=int(sys.argv[1])))
    sys.argv = [str(app.__file__), *words]
    sys.path[0] = str(Path.cwd())
    app.main()


if __name__ == "__main__":
    _serve()
