"""Running the gate on two templates, given as files or as texts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tplaudit.probes.gate.gate import Gate, run_gate
from tplaudit.probes.gate.lock import lock
from tplaudit.probes.gate.lock_file import to_text
from tplaudit.probes.gate.report import GateReport
from tplaudit.probes.gate.settings import GateSettings

RunGate = Callable[..., GateReport]


@pytest.fixture
def gate(tmp_path: Path) -> RunGate:
    """Return a function that compares two templates; texts with a brace in them are written to files."""

    def path_of(name: str, side: Path | str) -> str:
        if isinstance(side, str) and "{" in side:
            path = tmp_path / f"{name}.jinja"
            path.write_text(side, encoding="utf-8")
            return str(path)
        return str(side)

    def run(base: Path | str, head: Path | str, *, llamacpp: bool = False, **options: Any) -> GateReport:
        chosen = {
            key: options.pop(key) for key in ("fail_on", "today", "now", "special_tokens") if key in options
        }
        settings = GateSettings(base=path_of("base", base), head=path_of("head", head)).over(**options)
        return run_gate(Gate(settings, llamacpp=llamacpp, **chosen))

    return run


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes the signature of a template, and returns its file."""

    def write(source: Path, **options: Any) -> Path:
        path = tmp_path / "tplaudit.lock"
        path.write_text(to_text(lock(str(source), **options)), encoding="utf-8")
        return path

    return write


@pytest.fixture
def reminders(tmp_path: Path) -> Path:
    """Return a folder with one transcript that has a later system turn."""
    messages = [
        {"role": "system", "content": "You keep the lighthouse's log."},
        {"role": "user", "content": "Which lamps burnt last night?"},
        {"role": "assistant", "content": "The northern and the eastern one."},
        {"role": "system", "content": "Reminder: the log closes at noon."},
        {"role": "user", "content": "And which of them failed?"},
        {"role": "assistant", "content": "None of them, all night long."},
    ]
    folder = tmp_path / "transcripts"
    folder.mkdir()
    (folder / "log.jsonl").write_text("".join(json.dumps(message) + "\n" for message in messages))
    (folder / "notes.md").write_text("no transcript")
    return folder
