"""What commands have in common, as the tests ask for it."""

import subprocess
import sys
from pathlib import Path

#: What only a model's run or its tokenizer needs.
HEAVY = {"jinja2", "transformers", "tokenizers", "numpy", "mlx", "mlx_lm"}

_CLEARS = Path(__file__).parent / "cases" / "15-clear-thinking-key"
#: A replay in which the template drops reasoning, and a kwarg helps.
CLEARING = ("replay", _CLEARS / "case.json", "--model", _CLEARS / "template.jinja")
CLEARING += ("--tokenizer", "characters", "--block-size", "16", "--policy", "as-is")


def refused(done: "subprocess.CompletedProcess[str]") -> str:
    """Check that a command did nothing but say why, in one sentence, and return that."""
    assert done.stdout == ""
    return failed(done)


def failed(done: "subprocess.CompletedProcess[str]") -> str:
    """Check that a command ended with one sentence, whatever it printed before, and return that."""
    assert done.returncode == 2, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line and not line.startswith("note: ")]
    assert line.startswith("tplaudit: ")
    assert "Traceback" not in line
    return line


def heavy_modules(code: str) -> set[str]:
    """Return the heavy modules that a program of its own has loaded at its end, however it ends."""
    program = f"import sys\ntry:\n    {code}\nexcept SystemExit: pass\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return HEAVY & set(done.stdout.splitlines()[-1].split())
