"""Running the gate on two templates, given as files or as texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tplaudit.probes.gate.gate import Gate, run_gate
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
