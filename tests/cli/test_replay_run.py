import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "tplaudit.cli.app"]
SLOW = (
    "{% for m in messages %}{% for a in range(3000) %}{% for b in range(60) %}{% endfor %}{% endfor %}"
    "{{ m.content }}{% endfor %}"
)


def interrupted(number: int, tmp_path: Path, *arguments: str, after: str) -> tuple[int, str, str]:
    """Send a signal to a replay once its terminal shows some words; return its code, stdout and stderr."""
    pty = pytest.importorskip("pty")
    model = tmp_path / "slow.jinja"
    model.write_text(SLOW)
    lines = [f'{{"role": "{role}", "content": "{n}"}}' for n in range(300) for role in ("user", "assistant")]
    path = tmp_path / "long.jsonl"
    path.write_text("\n".join(lines))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "replay", str(path), "--model", str(model), "--no-causes", *arguments],
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(theirs)
    shown = b""
    sent = False
    while True:
        try:
            shown += os.read(ours, 65536)
        except OSError:  # the terminal's other end is closed
            break
        if after.encode() in shown and not sent:
            os.killpg(process.pid, number)
            sent = True
    os.close(ours)
    out, _ = process.communicate(timeout=60)
    return process.returncode, out, shown.decode()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_shows_what_has_run(number: int, code: int, tmp_path: Path) -> None:
    found, out, errors = interrupted(number, tmp_path, after="turn 1")
    assert found == code
    assert "turn" in out
    assert "tplaudit: interrupted" in errors and "Traceback" not in errors


def test_ctrl_c_with_several_processes(tmp_path: Path) -> None:
    code, _, errors = interrupted(signal.SIGINT, tmp_path, "--jobs", "2", after="replaying")
    assert code == 130
    assert "tplaudit: interrupted" in errors and "Traceback" not in errors
