"""The settings file."""

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
    ("text", "said"),
    [
        ("base = 3", "[gate]: base: expected `str | null`, got `int`; see docs/gate.md"),
        ("unknown = 3", "[gate]: object contains unknown field `unknown`; see docs/gate.md"),
        ("policies = 'omlx'", "[gate]: policies: expected `array`, got `str`; see docs/gate.md"),
        ("policies = [3]", "[gate]: policies[0]: expected `str`, got `int`; see docs/gate.md"),
        ("allow = ['regressed:*']", "'regressed:*' cannot be allowed; write changed:PATTERN"),
        ("prefill-rate = 0", "[gate]: prefill-rate: expected `float` >= 0.001; see docs/gate.md"),
        (
            "prefill-rate = true",
            "[gate]: prefill-rate: expected `float | null`, got `bool`; see docs/gate.md",
        ),
        ("block-size = 1.5", "[gate]: block-size: expected `int | null`, got `float`; see docs/gate.md"),
        ("block-size = 0", "[gate]: block-size: expected `int` >= 1; see docs/gate.md"),
        ("budget = 3", "[gate]: budget: expected `array`, got `int`; see docs/gate.md"),
        ("budget = [3]", "[gate]: budget[0]: expected `object`, got `int`; see docs/gate.md"),
        ("kwargs = 3", "[gate]: kwargs: expected `object`, got `int`; see docs/gate.md"),
        ("[[gate.budget]]\npolicy = 'omlx'", "budget 1: no limit is set; set max-avoidable-tokens"),
        ("[[gate.budget]]\nmax-tokens = 3", "budget 1: object contains unknown field `max-tokens`; see"),
        (
            "[[gate.budget]]\nmax-seconds = 3\n[[gate.budget]]\nmax-seconds = 'many'",
            "budget 2: 'many' is no limit",
        ),
        (
            "[[gate.budget]]\nmax-seconds = true",
            "budget 1: max-seconds: expected `int | float | str | null`, got",
        ),
        (
            "[[gate.ignore]]\nrule = 'text-lost'",
            "ignore 1: object missing required field `reason`; write it like",
        ),
        (
            "[[gate.ignore]]\nrule = 'text-lost'\nreason = ' '",
            "ignore 1: reason: expected `str` matching regex",
        ),
        (
            "[[gate.ignore]]\nrule = 'nothing'\nreason = 'r'",
            "ignore 1: there is no rule 'nothing'; see docs/gate.md",
        ),
        ("[[gate.ignore]]\nrule = 'text-lost'\nreason = 'r'\nuntil = 3", "unknown field `until`"),
        (
            "[[gate.ignore]]\nrule = 'text-lost'\nreason = 'r'\nexpires = '2027-01-01'",
            "ignore 1: expires: expected `date | null`, got `str`",
        ),
        ("base = ", "not a TOML file"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "tplaudit.toml"
    path.write_text(f"[gate]\n{text}\n")
    with pytest.raises((InputError, UsageError)) as raised:
        read_settings(path)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_budget_sets_several_limits_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "tplaudit.toml"
    path.write_text(
        "[[gate.budget]]\nmax-seconds = 3\nmax-reprefill-ratio = 0.3\nmin-divergence-depth = 'base'"
    )
    assert [(each.name, each.limit.text) for each in read_settings(path).budgets] == [
        ("max-reprefill-ratio", "0.3"),
        ("min-divergence-depth", "base"),
        ("max-seconds", "3"),
    ]


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
