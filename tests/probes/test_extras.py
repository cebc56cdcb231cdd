"""What is said where the extra `mlx` is not installed; tests/light.py runs whole commands without it."""

import subprocess
import sys
from pathlib import Path

import pytest
from tplaudit.fixtures import transcript
from tplaudit.probes.errors import UsageError
from tplaudit.probes.extras import INSTALL, check_mlx, has_mlx, has_transformers

WITHOUT = (
    "import sys\n"
    "for name in ('mlx', 'mlx_lm', 'transformers'): sys.modules[name] = None\n"
    "sys.argv = ['tplaudit', *sys.argv[1:]]\n"
    "from tplaudit.cli.app import main\n"
    "main()\n"
)


def without_the_extra(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_what_is_installed_here() -> None:
    assert has_mlx() and has_transformers()
    check_mlx("calibrate")


def test_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlx_lm", None)
    assert has_transformers()
    with pytest.raises(UsageError) as caught:
        check_mlx("--verify")
    assert str(caught.value) == f"--verify: a model runs with mlx-lm, which is not installed; {INSTALL}"


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (("replay", transcript("chat"), "--engine", "mlx"), "--engine mlx"),
        (("replay", transcript("chat"), "--verify"), "--verify"),
        (("calibrate",), "calibrate"),
    ],
)
def test_what_runs_a_model_says_what_to_install(arguments: tuple[object, ...], where: str) -> None:
    done = without_the_extra(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"tplaudit: {where}: a model runs with mlx-lm, which is not installed; {INSTALL}\n"
    )


def test_a_replay_counts(tmp_path: Path) -> None:
    output = tmp_path / "report.json"
    done = without_the_extra("replay", transcript("chat"), "-p", "as-is", "--json", "-o", output)
    assert done.returncode == 0
    assert done.stderr == (
        f"note: mlx-lm is not installed, so tokens are only counted; to run the model, {INSTALL}\n"
    )
    assert '"engine": "tokens"' in output.read_text(encoding="utf-8")
