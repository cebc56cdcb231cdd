import os
import subprocess
import sys
from pathlib import Path

import pytest
from tplaudit.fixtures import DEFAULT_MODEL, transcript

CHAT = transcript("chat")
COMMAND = [sys.executable, "-m", "tplaudit.cli.app"]


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
