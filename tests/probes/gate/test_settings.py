"""The settings file."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from tplaudit.probes.errors import InputError, UsageError
from tplaudit.probes.gate.settings import GateSettings, find_settings, read_settings

FULL = """
base = "git:origin/main:chat_template.jinja"
head = "chat_template.jinja"
transcripts = "transcripts"
policies = ["omlx", "vllm"]
tokenizer = "tokenizer.json"
prefill-rate = 900
block-size = 512
allow = ["changed:tools/*"]
kwargs = { enable_thinking = false }

[[TABLE.budget]]
policy = "omlx"
max-avoidable-tokens = "base+5%"
max-seconds = 30

[[TABLE.ignore]]
rule = "text-lost"
where = "tools/result-parts"
reason = "lists are flattened by the server"
expires = 2027-01-31
"""


@pytest.mark.parametrize(
    ("name", "table"), [("tplaudit.toml", "gate"), ("pyproject.toml", "tool.tplaudit.gate")]
)
def test_every_key(tmp_path: Path, name: str, table: str) -> None:
    (tmp_path / name).write_text(f"[{table}]\n" + FULL.replace("TABLE", table))
    settings = find_settings(tmp_path)
    assert settings.base == "git:origin/main:chat_template.jinja"
    assert (settings.head, settings.transcripts, settings.tokenizer) == (
        "chat_template.jinja",
        "transcripts",
        "tokenizer.json",
    )
    assert settings.policies == ("omlx", "vllm")
    assert (settings.prefill_rate, settings.block_size) == (900, 512)
    assert GateSettings().block_size is None
    assert settings.kwargs == {"enable_thinking": False}
    assert [allowance.text for allowance in settings.allowances] == ["changed:tools/*"]
    assert [(budget.name, budget.policy, budget.limit.text) for budget in settings.budgets] == [
        ("max-avoidable-tokens", "omlx", "base+5%"),
        ("max-seconds", "omlx", "30"),
    ]
    (known,) = settings.known
    assert (known.rule, known.where, known.expires) == ("text-lost", "tools/result-parts", date(2027, 1, 31))


def test_no_file_and_a_file_without_a_table(tmp_path: Path) -> None:
    assert find_settings(tmp_path) == GateSettings()
    (tmp_path / "pyproject.toml").write_text("[tool.other]\n")
    assert find_settings(tmp_path) == GateSettings()


def test_its_own_file_comes_first(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.tplaudit.gate]\nbase = "theirs"\n')
    (tmp_path / "tplaudit.toml").write_text('[gate]\nbase = "own"\n')
    assert find_settings(tmp_path).base == "own"


@pytest.mark.parametrize(
    "text",
    [
        "base = 3",
        "unknown = 3",
        "policies = 'omlx'",
        "policies = [3]",
        "allow = ['regressed:*']",
        "prefill-rate = 0",
        "prefill-rate = true",
        "block-size = 1.5",
        "budget = 3",
        "kwargs = 3",
        "[[gate.budget]]\npolicy = 'omlx'",
        "[[gate.ignore]]\nrule = 'text-lost'",
        "[[gate.ignore]]\nrule = 'nothing'\nreason = 'r'",
        "base = ",
    ],
)
def test_broken_files(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tplaudit.toml"
    path.write_text(f"[gate]\n{text}\n")
    with pytest.raises((InputError, UsageError)):
        read_settings(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_settings(tmp_path / "none.toml")


def test_the_command_line_comes_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "tplaudit.toml").write_text("[gate]\n" + FULL.replace("TABLE", "gate"))
    settings = find_settings(tmp_path).over(
        base="other", policies=("as-is",), kwargs={"x": 1}, allowances=(), block_size=None
    )
    assert (settings.base, settings.policies, settings.block_size) == ("other", ("as-is",), 512)
    # Seconds are predicted from one thing, and the command line comes over the file.
    calibrated = settings.over(calibration="c.json").check()
    assert (calibrated.prefill_rate, calibrated.calibration) == (None, "c.json")
    assert calibrated.over(prefill_rate=3.0).check().calibration is None
    with pytest.raises(UsageError, match="from one thing"):
        settings.over(prefill_rate=3.0, calibration="c.json").check()
    assert settings.kwargs == {"enable_thinking": False, "x": 1}
    assert len(settings.allowances) == 1
