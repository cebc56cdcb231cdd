"""Running the command line as a person does."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from command_processes import run_command

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def tplaudit() -> Run:
    """Return a function that runs `tplaudit` with arguments, by default at most 40 s long."""

    def run(
        *arguments: object, stdin: str = "", timeout: float = 40, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return run_command(*arguments, stdin=stdin, timeout=timeout, environment=environment)

    return run
