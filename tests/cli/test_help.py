"""Help at any width: nothing wider than the terminal, no name of an option cut, examples that run."""

import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from command_processes import run_command
from tplaudit.cli.app import app
from tplaudit.cli.examples import examples_of
from tplaudit.cli.help import HelpCommand

ROOT = Path(__file__).resolve().parents[2]
WIDTHS = (40, 60, 80, 100, 200)
GROUP = typer.main.get_command(app)
COMMANDS = sorted(GROUP.commands)  # type: ignore[attr-defined]


def _options(command: str) -> list[str]:
    params = GROUP.commands[command].params  # type: ignore[attr-defined]
    return [name for each in params for name in (*each.opts, *each.secondary_opts) if name.startswith("-")]


def _metavars(command: str) -> list[str]:
    params = GROUP.commands[command].params  # type: ignore[attr-defined]
    return [each.metavar for each in params if each.metavar and each.param_type_name == "option"]


@functools.cache
def _help(width: int, *arguments: str) -> str:
    """Return a help text, asked for once in a test process."""
    environment = {"COLUMNS": str(width), "NO_COLOR": "1"}
    done = run_command(*arguments, "--help", timeout=120, environment=environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_and_cuts_nothing(command: str, width: int) -> None:
    shown = _help(width, command)
    assert [line for line in shown.splitlines() if len(line) > width] == []
    assert "…" not in shown.replace(",…]", "")
    for name in (*_options(command), "--help"):
        assert re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", shown), name
    for metavar in _metavars(command):
        assert metavar in shown
    assert not re.search(r"<\w+>|\[x[<>]|<\w+ range>", shown.replace("bos_token=<s>", ""))


@pytest.mark.parametrize("width", WIDTHS)
def test_the_list_of_commands_fits(width: int) -> None:
    shown = _help(width)
    assert [line for line in shown.splitlines() if len(line) > width] == []
    for name in (*COMMANDS, "--version", "--install-completion", "--show-completion"):
        assert re.search(rf"^ {{3}}{name}\b", shown, re.MULTILINE)


def test_help_uses_the_width_there_is() -> None:
    """A paragraph has no line breaks of its own: a wide terminal shows it in fewer lines."""
    lines = {width: len(_help(width, "replay").splitlines()) for width in (60, 100)}
    assert lines[100] < lines[60]
    paragraph = " ".join(_help(100, "replay").split())
    assert "Each policy runs against an empty cache of its own. Tokens are counted." in paragraph
    first = _help(100, "replay").splitlines()[5]
    assert len(first) > 85


def test_options_stand_in_panels() -> None:
    shown = _help(80, "replay")
    panels = re.split(r"^ (\w+) *$", shown, flags=re.MULTILINE)
    options = {name: set(re.findall(r"^ {3}(--[\w-]+)", text, re.MULTILINE)) for name, text in _pairs(panels)}
    assert list(options) == ["Examples", "Input", "Server", "Cache", "Prefill", "Output"]
    assert {"--model", "--template", "--kwargs"} <= options["Input"]
    assert options["Server"] == {"--policy", "--policy-code", "--server-log"}
    assert {"--block-size", "--store", "--cache-bytes"} <= options["Cache"]
    assert {"--json", "--output", "--help"} <= options["Output"]


def _pairs(parts: list[str]) -> list[tuple[str, str]]:
    return list(zip(parts[1::2], parts[2::2], strict=True))


def test_no_command_prints_the_list_of_commands(tplaudit) -> None:
    done = tplaudit(COLUMNS="80")
    assert done.returncode == 2
    assert "Commands" in done.stdout
    assert done.stdout.strip() == tplaudit("--help", COLUMNS="80").stdout.strip()


def test_every_command_has_this_help() -> None:
    assert all(isinstance(each, HelpCommand) for each in GROUP.commands.values())  # type: ignore[attr-defined]


# Examples


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("width", WIDTHS)
def test_examples_can_be_pasted_from_the_help(command: str, width: int) -> None:
    shown = _help(width, command).replace("\\\n", " ")
    pasted = {" ".join(line.split()) for line in re.sub(r"\\ *\n", " ", shown).splitlines()}
    for each in examples_of(command):
        assert each.command in pasted


# Other ways to start


def test_python_m_tplaudit() -> None:
    done = subprocess.run([sys.executable, "-m", "tplaudit", "--version"], capture_output=True, check=True)
    assert done.stdout.startswith(b"tplaudit ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, tplaudit) -> None:
    done = tplaudit("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert done.returncode == 0, done.stderr
    assert f"_TPLAUDIT_COMPLETE=complete_{shell}" in done.stdout


COMPLETE = {
    "bash": {"COMP_WORDS": "tplaudit re", "COMP_CWORD": "1"},
    "zsh": {"_TYPER_COMPLETE_ARGS": "tplaudit re"},
    "fish": {
        "_TYPER_COMPLETE_ARGS": "tplaudit re",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_WORD_TO_COMPLETE": "re",
    },
}


@pytest.mark.parametrize("shell", COMPLETE)
def test_completion_of_a_command(shell: str, tplaudit) -> None:
    done = tplaudit(_TPLAUDIT_COMPLETE=f"complete_{shell}", **COMPLETE[shell])
    assert done.returncode == 0, done.stderr
    assert {"replay", "render"} <= set(re.findall(r"\w+", done.stdout))
    assert not {"probe", "gate"} & set(re.findall(r'^"?(\w+)', done.stdout, re.MULTILINE))


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "wanted"),
    [(["tplaudit", "cal"], ["calibrate"]), (["tplaudit", "replay", "--cache"], ["--cache-bytes"])],
)
def test_bash_completes_once_completion_is_installed(
    words: list[str], wanted: list[str], tmp_path: Path, tplaudit
) -> None:
    """Installed into an own home, and asked as bash asks: with the function that the file defines."""
    done = tplaudit(
        "--install-completion", "bash", HOME=str(tmp_path), _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1"
    )
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.rglob("tplaudit.sh")
    script = (
        f"source {shlex.quote(str(file))}\n"
        f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}\n"
        "$(complete -p tplaudit | sed 's/.*-F \\([^ ]*\\).*/\\1/') tplaudit\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    run = subprocess.run(
        ["bash", "-c", script], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == wanted
