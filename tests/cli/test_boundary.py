"""The boundary of the command line: whatever is given or happens, one line and an exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tplaudit.fixtures import DEFAULT_MODEL, transcript

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


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
@pytest.mark.parametrize("arguments", [["--help"], ["rules"], ["rules", "--json"]])
def test_a_full_disk(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert done.stderr == b"tplaudit: output: no space left on device\n"


def test_stdout_is_closed() -> None:
    done = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -m tplaudit.cli.app rules >&-'], capture_output=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == b"tplaudit: stdout is closed; send it to a file or to /dev/null\n"


def test_a_lone_surrogate_in_a_prompt(tmp_path: Path, tplaudit) -> None:
    path = tmp_path / "surrogate.jsonl"
    path.write_text('{"role": "user", "content": "a \\ud800 b"}\n')
    done = tplaudit("render", path, "-p", "as-is", "--full")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_name_that_is_no_utf8(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/t\xff.jinja"
    try:
        Path(os.fsdecode(path)).write_bytes((DEFAULT_MODEL / "chat_template.jinja").read_bytes())
    except OSError:
        pytest.skip("this file system takes UTF-8 only")
    done = subprocess.run([*COMMAND, "probe", path, "--fail-on", "never"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("terminal", [False, True])
def test_nothing_steers_the_terminal(terminal: bool, tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    path = tmp_path / "\x1b]0;evil\x07\x9b2J.jinja"
    path.write_text("{{ raise_exception('bad \\x1b]0;evil\\x07\\x9b2J') }}")
    command = [*COMMAND, "render", str(CHAT), "--model", str(path)]
    ours, theirs = pty.openpty()
    with open(theirs, "wb", closefd=False) if terminal else (tmp_path / "out").open("wb") as stdout:
        done = subprocess.Popen(
            command, stdout=stdout, stderr=subprocess.PIPE, env={**os.environ, "TERM": "xterm"}
        )
        os.close(theirs)
        shown = b""
        while terminal:
            try:
                shown += os.read(ours, 65536)
            except OSError:
                break
        _, errors = done.communicate(timeout=40)
    os.close(ours)
    shown = shown if terminal else (tmp_path / "out").read_bytes()
    assert b"evil" in shown and b"evil" in errors
    for text in (shown, errors):
        assert b"\x1b]" not in text and b"\x07" not in text and b"\xc2\x9b" not in text
    assert len(errors.splitlines()) == 1 or b"ote: " in errors


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
        (["replay", CHAT, "--kwargs", "x=[NaN]"], "no JSON"),
        (["render", CHAT, "--kwargs", "x=1e999"], "no JSON"),
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


def test_another_version_beside_all() -> None:
    from tplaudit.cli.options import policy_names
    from tplaudit.probes.policies.registry import names

    assert policy_names(["omlx:version=x", "all", "omlx"]) == [*names(), "omlx:version=x"]


def interrupted(number: int, tmp_path: Path, *arguments: str, seconds: float = 2.5) -> tuple[int, str, str]:
    """Send a signal some seconds into a replay; return its exit code, stdout and stderr."""
    model = tmp_path / "slow.jinja"
    model.write_text(SLOW)
    lines = [f'{{"role": "{role}", "content": "{n}"}}' for n in range(300) for role in ("user", "assistant")]
    path = tmp_path / "long.jsonl"
    path.write_text("\n".join(lines))
    process = subprocess.Popen(
        [*COMMAND, "replay", str(path), "--model", str(model), "--no-causes", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    time.sleep(seconds)
    os.killpg(process.pid, number)
    out, errors = process.communicate(timeout=60)
    return process.returncode, out, errors


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_shows_what_has_run(number: int, code: int, tmp_path: Path) -> None:
    # A busy machine may not get to the first turn before the signal: then it gets longer.
    for seconds in (2.5, 5, 10, 20, 40):
        found, out, errors = interrupted(number, tmp_path, seconds=seconds)
        if "turn" in out:
            break
    assert found == code
    assert "turn" in out
    assert "tplaudit: interrupted" in errors and "Traceback" not in errors


def test_ctrl_c_with_several_processes(tmp_path: Path) -> None:
    # Before the command itself runs, it ends without a word.
    for seconds in (2.5, 5, 10, 20, 40):
        code, _, errors = interrupted(signal.SIGINT, tmp_path, "--jobs", "2", seconds=seconds)
        if errors:
            break
    assert code == 130
    assert "tplaudit: interrupted" in errors and "Traceback" not in errors


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
    time.sleep(2.5)
    os.killpg(process.pid, signal.SIGINT)
    out, errors = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, "")
    assert errors.startswith("tplaudit: interrupted; ") and errors.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "option", "follows"),
    [
        (("replay", CHAT, "--model", "--policy", "omlx"), "--model", "--policy"),
        (("replay", CHAT, "-p", "--json"), "--policy", "--json"),
        (("render", CHAT, "-m", "-p", "omlx"), "--model", "-p"),
        (("render", CHAT, "--output", "--json"), "--output", "--json"),
        (("probe", "x.jinja", "--kwargs", "--json"), "--kwargs", "--json"),
    ],
)
def test_an_option_that_took_the_next_one_for_its_value(tplaudit, arguments, option, follows) -> None:
    done = tplaudit(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    said = (
        f"tplaudit: {option}: its value is missing, and the option {follows} follows; write {option} VALUE\n"
    )
    assert done.stderr == said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["replay", "--polcy", "omlx"], "no such option: --polcy"),
        (["repla"], "no such command 'repla'"),
        (["replay"], "missing argument 'TRANSCRIPT'"),
        (["calibrate", "--depth", "deep"], "invalid value for '--depth'"),
    ],
)
def test_wrong_arguments_are_one_line(arguments: list[str], said: str) -> None:
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=40, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"tplaudit: {said}")
    assert done.stderr.count("\n") == 1
    assert "see tplaudit" in done.stderr and "--help" in done.stderr


def test_nothing_at_all_is_help() -> None:
    done = subprocess.run(COMMAND, capture_output=True, text=True, timeout=40, check=False)
    assert done.returncode == 2
    assert "replay" in done.stdout and done.stderr == ""


def test_a_rule_is_laid_out_on_a_terminal() -> None:
    shown, terminal = os.openpty()
    command = [*COMMAND, "explain", "system-dropped"]
    assert subprocess.run(command, stdout=terminal, timeout=40, check=False).returncode == 0
    os.close(terminal)
    text = os.read(shown, 4096)
    os.close(shown)
    assert b"system-dropped" in text and b"# system-dropped" not in text and b"**" not in text
