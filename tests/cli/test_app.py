"""The boundary of the command line: whatever is given or happens, one line and an exit code."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tplaudit.fixtures import transcript

CHAT = transcript("chat")
COMMAND = [sys.executable, "-m", "tplaudit.cli.app"]
CRASH = (
    "import tplaudit.cli.app as app, tplaudit.cli.rules as rules\n"
    "app.app.registered_commands.clear()\n"
    "@app.app.command('fail')\n"
    "def fail() -> None:\n"
    "    raise {error}\n"
    "app.app.command('other')(rules.command)\n"
    "import sys; sys.argv = ['tplaudit', 'fail']\n"
    "app.main()\n"
)
SLOW = (
    "{% for m in messages %}{% for a in range(3000) %}{% for b in range(60) %}{% endfor %}{% endfor %}"
    "{{ m.content }}{% endfor %}"
)


def failing(error: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CRASH.format(error=error)],
        capture_output=True,
        text=True,
        timeout=40,
        env={**os.environ, **environment},
        check=False,
    )


def test_an_unexpected_exception_is_one_line() -> None:
    done = failing("TypeError('a\\nb\\x1b[2J')")
    assert done.returncode == 2
    assert done.stderr == "tplaudit: internal error (TypeError: a b\u241b[2J); please report it\n"


def test_the_traceback_of_an_unexpected_exception_can_be_seen() -> None:
    assert "Traceback" in failing("TypeError('x')", TPLAUDIT_TRACEBACK="1").stderr


@pytest.mark.parametrize(("error", "code"), [("KeyboardInterrupt", 130), ("BrokenPipeError(32, 'x')", 2)])
def test_what_ends_quietly(error: str, code: int) -> None:
    done = failing(error)
    assert (done.returncode, done.stderr) == (code, "")


def test_ctrl_c_during_imports() -> None:
    code = (
        "import sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "import tplaudit.cli.app\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")


def test_a_long_error_text_is_cut(tmp_path: Path, tplaudit) -> None:
    path = tmp_path / "long.jinja"
    path.write_text("{{ raise_exception('y' * 100000) }}")
    done = tplaudit("render", CHAT, "--model", path)
    assert done.returncode == 2
    assert "yyy" in done.stdout and len(done.stdout) < 20_000
    assert "(100,000 characters)" in done.stderr and len(done.stderr) < 1000


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["replay", CHAT, "--cache-bytes", "9" * 400], "no cache is that large"),
        (["replay", CHAT, "--kwargs", "x=" + "[" * 100_000], "nested too deeply"),
        (["replay", CHAT, "--kwargs", "x=[NaN]"], "not JSON"),
        (["render", CHAT, "--kwargs", "x=1e999"], "not JSON"),
        (["replay", CHAT, "-p", "all", "-p", "nope"], "no policy 'nope'"),
        (["replay", "-", "--model", "-"], "only one of them can be stdin"),
        (["render", "-", "--template", "-"], "only one of them can be stdin"),
        (["probe", "-", "-"], "only one of them can be stdin"),
        (["replay", ""], "TRANSCRIPT: the name is empty"),
        (["render", CHAT, "--model", ""], "--model: the name is empty"),
        (["probe", ""], "MODEL: the name is empty"),
        (["thinking", ""], "MODEL: the name is empty"),
        (["replay", CHAT, "--output", "/no/where/x"], "there is no folder"),
        (["rules", "--output", "/"], "it is a folder"),
        (["render", CHAT, "--output", CHAT], "it would overwrite what is read"),
    ],
)
def test_refused(arguments: list[object], says: str, tplaudit) -> None:
    done = tplaudit(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert says in done.stderr and done.stderr.count("\n") == 1


def test_ctrl_c_while_several_templates_are_probed(tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / f"{number}.jinja").write_text(SLOW)
    process = subprocess.Popen(
        [*COMMAND, "probe", str(tmp_path), "--jobs", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    children = ["pgrep", "-P", str(process.pid)]  # one of them is started before any work
    while len(subprocess.run(children, capture_output=True, check=False).stdout.split()) < 3:
        assert process.poll() is None, "it ended before it had begun"
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert errors.startswith("tplaudit: interrupted; ") and errors.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["replay", "--polcy", "omlx"], "no such option: --polcy"),
        (["repla"], "no such command 'repla'"),
        (["replay"], "missing argument 'TRANSCRIPT'"),
        (["calibrate", "--depth", "deep"], "invalid value for '--depth'"),
    ],
)
def test_wrong_arguments_are_one_line(arguments: list[str], said: str, tplaudit) -> None:
    done = tplaudit(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"tplaudit: {said}")
    assert done.stderr.count("\n") == 1
    assert "see tplaudit" in done.stderr and "--help" in done.stderr


def test_nothing_at_all_is_help() -> None:
    done = subprocess.run(COMMAND, capture_output=True, text=True, timeout=40, check=False)
    assert done.returncode == 2
    assert "replay" in done.stdout and done.stderr == ""
