import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from command_processes import run_command
from tplaudit import fixtures
from tplaudit.cli.app import app
from tplaudit.cli.examples import examples_of
from tplaudit.cli.help import continued

GROUP = typer.main.get_command(app)
COMMANDS = sorted(GROUP.commands)  # type: ignore[attr-defined]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return a folder with the files that the examples name."""
    shutil.copy(fixtures.template("in-place"), tmp_path / "old.jinja")
    shutil.copy(fixtures.template("in-place"), tmp_path / "new.jinja")
    shutil.copy(fixtures.transcript("chat"), tmp_path / "session.jsonl")
    (tmp_path / "model_settings.json").write_text(
        json.dumps({"models": {"new.jinja": {"chat_template_kwargs": {"enable_thinking": False}}}})
    )
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_two_examples_run(command: str, files: Path) -> None:
    found = examples_of(command)
    assert len(found) == 2
    for number, each in enumerate(found):
        program, *arguments = shlex.split(each.command)
        assert (program, arguments[0]) == ("tplaudit", command)
        folder = {"TPLAUDIT_CACHE_DIR": str(files / "cache")}
        if number:
            done = run_command(*arguments, cwd=files, environment=folder, timeout=120)
        else:  # from a cold start: nothing is imported but what this command imports
            done = subprocess.run(
                [sys.executable, "-m", "tplaudit", *arguments],
                cwd=files,
                env={**os.environ, **folder},
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
        assert done.returncode in (0, 1), done.stderr
        assert "Traceback" not in done.stderr
        assert done.stdout or command == "lock"
        assert command == "probe" or done.returncode == 0, done.stdout


def test_a_continued_command_is_the_same_command() -> None:
    command = "tplaudit gate --base old.jinja --head new.jinja"
    lines = continued(command, 30)
    assert all(len(line) <= 30 for line in lines)
    assert len(lines) > 1
    assert shlex.split(" ".join(line.removesuffix("\\") for line in lines)) == shlex.split(command)
