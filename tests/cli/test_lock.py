"""`tplaudit lock` as a person runs it."""

import json
import shutil
from pathlib import Path

import pytest
from commands import refused
from tplaudit import fixtures

PAIRS = Path(fixtures.__file__).parent / "gate"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working folder with a template in it."""
    shutil.copy(PAIRS / "strict.jinja", tmp_path / "chat.jinja")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_lock_and_check(tplaudit, folder: Path) -> None:
    done = tplaudit("lock", "chat.jinja")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "wrote tplaudit.lock: 1 template(s) of chat.jinja\n"
    assert tplaudit("lock", "--check").returncode == 0
    shutil.copy(PAIRS / "reformatted.jinja", "chat.jinja")
    assert tplaudit("lock", "--check").returncode == 0
    shutil.copy(PAIRS / "dropping.jinja", "chat.jinja")
    failed = tplaudit("lock", "--check")
    assert failed.returncode == 1
    assert "regressed system-dropped" in failed.stdout
    assert "Note: tplaudit lock chat.jinja writes the signature anew, where this is meant." in failed.stdout


def test_an_improvement_has_to_be_locked_anew(tplaudit, folder: Path) -> None:
    tplaudit("lock", "chat.jinja")
    done = tplaudit("lock", "--check", PAIRS / "in-place.jinja", "--json", "--format", "sarif=out.sarif")
    document = json.loads(done.stdout)
    assert done.returncode == 1
    assert (document["outcome"], document["against"]) == ("fixed", "signature")
    (result,) = json.loads(Path("out.sarif").read_text())["runs"][0]["results"]
    assert result["ruleId"] == "system-raises"
    tplaudit("lock", PAIRS / "in-place.jinja")
    assert tplaudit("lock", "--check", PAIRS / "in-place.jinja").returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["missing.jinja"],
        ["--check"],
        ["--check", "--file", "none.lock"],
        ["chat.jinja", "--json"],
        ["chat.jinja", "--file", "missing/folder/x.lock"],
        ["chat.jinja", "--file", "chat.jinja"],
    ],
)
def test_errors(tplaudit, folder: Path, arguments: list[str]) -> None:
    assert refused(tplaudit("lock", *arguments))


def test_a_check_leaves_signature_and_template_alone(tplaudit, folder: Path) -> None:
    tplaudit("lock", "chat.jinja")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    for target in ("chat.jinja", "tplaudit.lock"):
        said = refused(tplaudit("lock", "--check", "--output", target))
        assert said == f"tplaudit: {target}: it would overwrite what is read; give another file"
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_check_takes_its_settings_from_the_signature(tplaudit, folder: Path) -> None:
    tplaudit("lock", "chat.jinja", "--kwargs", "enable_thinking=false")
    assert tplaudit("lock", "--check").returncode == 0
    assert tplaudit("lock", "--check", "--kwargs", "enable_thinking=true").returncode == 2
