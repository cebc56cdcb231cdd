import json
import re
import shutil
from pathlib import Path

import pytest
from gate_pairs import STRICT, run, sarif
from junitparser import Failure, JUnitXml
from tplaudit import fixtures


def test_several_outputs_at_once(tplaudit, tmp_path: Path) -> None:
    names = {"sarif": "a.sarif", "junit": "a.xml", "json": "a.json", "markdown": "a.md", "github": "a.txt"}
    formats = [item for name, file in names.items() for item in ("--format", f"{name}={tmp_path / file}")]
    done = run(tplaudit, "breaks-tools", *formats)
    assert "✗ fail" in done.stdout
    changes = json.loads((tmp_path / "a.json").read_text())["changes"]
    failing = [change for change in changes if change["severity"] == "error" and not change["accepted"]]
    results = sarif(tmp_path / "a.sarif")["runs"][0]["results"]
    assert [result["ruleId"] for result in results] == [change["rule"] for change in failing]
    cases = [case for suite in JUnitXml.fromfile(str(tmp_path / "a.xml")) for case in suite]
    failed = {case.name for case in cases if any(isinstance(result, Failure) for result in case.result)}
    assert failed == {subject.partition("@")[0] for change in failing for subject in change["subjects"]}
    assert (tmp_path / "a.md").read_text().count("❌ regressed") == len(failing)
    assert (tmp_path / "a.txt").read_text().count("::error ") == len(failing)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--output", "old.jinja"],
        ["--output", "model/chat_template.jinja"],
        ["--format", "json=./old.jinja"],
        ["--format", "sarif=model/config.json"],
        ["--transcripts", "chats", "--output", "chats/chat.jsonl"],
        ["--config", "gate.toml", "--format", "markdown=gate.toml"],
        ["--calibration", "measured.json", "--format", "json=measured.json"],
    ],
)
def test_no_report_is_written_over_what_is_read(
    tplaudit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("model", "chats"):
        Path(folder).mkdir()
    shutil.copy(STRICT, "old.jinja")
    shutil.copy(STRICT, "model/chat_template.jinja")
    shutil.copy(fixtures.transcript("chat"), "chats")
    Path("model/config.json").write_text("{}")
    Path("measured.json").write_text("{}")
    Path("gate.toml").write_text("[gate]\n")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    done = tplaudit("gate", "--base", "old.jinja", "--head", "model", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"tplaudit: \S+: it would overwrite what is read; give another file\n", done.stderr)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
