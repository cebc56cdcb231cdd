import os
import subprocess
import sys

COMMAND = [sys.executable, "-m", "tplaudit.cli.app"]


def test_a_rule_is_laid_out_on_a_terminal() -> None:
    shown, terminal = os.openpty()
    command = [*COMMAND, "explain", "system-dropped"]
    assert subprocess.run(command, stdout=terminal, timeout=40, check=False).returncode == 0
    os.close(terminal)
    text = os.read(shown, 4096)
    os.close(shown)
    assert b"system-dropped" in text and b"# system-dropped" not in text and b"**" not in text
