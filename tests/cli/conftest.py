"""Running the command line as a person does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def tplaudit() -> Run:
    """Return a function that runs `tplaudit` with arguments, by default at most 40 s long."""

    def run(
        *arguments: object, stdin: str = "", timeout: float = 40, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tplaudit.cli.app", *map(str, arguments)],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, **environment},
            check=False,
        )

    return run
