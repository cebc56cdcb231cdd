"""`tplaudit gate` as a person and as CI run it."""

import json
import re
import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest
from commands import refused
from gate_pairs import PAIRS, STRICT, run, sarif
from junitparser import JUnitXml
from tplaudit import fixtures


def test_both_engines_are_asked_where_they_are_installed(tplaudit) -> None:
    done = tplaudit("gate", "--base", STRICT, "--head", PAIRS / "newline.jinja", "--json")
    assert done.stderr == ""
    (change,) = json.loads(done.stdout)["changes"]
    assert "tools/round@llama.cpp" in change["subjects"]


@pytest.fixture
def edited(tmp_path: Path) -> Path:
    """Return a template with several edits, none of which any rule is about."""
    path = tmp_path / "edited.jinja"
    text = (PAIRS / "newline.jinja").read_text(encoding="utf-8")
    path.write_text(text.replace("<|im_start|>assistant", "<|im_start|>model"), encoding="utf-8")
    return path


def test_one_command_allows_all_changed_prompts(tplaudit, edited: Path, tmp_path: Path) -> None:
    sides = ("gate", "--no-llamacpp", "--base", STRICT, "--head", edited)
    names = ("json", "markdown", "github", "junit", "sarif")
    formats = [item for name in names for item in ("--format", f"{name}={tmp_path / name}")]
    done = tplaudit(*sides, *formats)
    assert done.stdout.splitlines()[1] == "✗ fail: nothing is worse, but prompts changed that nobody allowed."
    (line,) = re.findall(r"^If all changed prompts are meant: (.+)$", done.stdout, re.MULTILINE)
    after = tplaudit(*sides, *shlex.split(line))
    assert after.returncode == 0
    assert after.stdout.splitlines()[1] == "✓ pass: nothing is worse, but prompts changed (accepted)."
    assert "matches nothing" not in after.stdout
    assert "If all" not in after.stdout
    document = json.loads((tmp_path / "json").read_text())
    assert document["allow"] == [word for word in shlex.split(line) if word != "--allow"]
    assert f"If all changed prompts are meant: `{line}`\n" in (tmp_path / "markdown").read_text()
    assert f"::If all changed prompts are meant: {line}\n" in (tmp_path / "github").read_text()
    said = ElementTree.parse(tmp_path / "junit").findtext("testsuite/system-out")
    assert f"If all changed prompts are meant: {line}" in str(said).splitlines()
    (invocation,) = sarif(tmp_path / "sarif")["runs"][0]["invocations"]
    told = [each["message"]["text"] for each in invocation["toolExecutionNotifications"]]
    assert f"{edited}: If all changed prompts are meant: {line}" in told


def test_a_regression_beside_changed_prompts_is_told_apart(tplaudit, edited: Path) -> None:
    text = edited.read_text(encoding="utf-8")
    edited.write_text("{%- set messages = messages[:-1] if messages | length > 3 else messages -%}" + text)
    done = tplaudit("gate", "--no-llamacpp", "--base", STRICT, "--head", edited)
    assert done.stdout.splitlines()[1] == "✗ fail: something is worse than it was."
    assert re.search(
        r"Note: what regressed \(\d+\) cannot be allowed: repair it, or say why not", done.stdout
    )


def test_every_policy_has_the_cache_of_its_server(tplaudit) -> None:
    chat = ("--transcripts", fixtures.transcript("chat"), "-p", "omlx", "-p", "rapid-mlx")
    numbers = ("--max-reprefill-ratio", "1", "--json")
    own = json.loads(run(tplaudit, "in-place", *chat, *numbers).stdout)
    assert own["notes"][0] == (
        "replayed against paged, blocks of 256 tokens (omlx); "
        "rapid-mlx, token by token (rapid-mlx); layers: plain"
    )
    blocks = json.loads(run(tplaudit, "in-place", *chat, *numbers, "--block-size", 256).stdout)
    assert blocks["notes"][0] == (
        "replayed against paged, blocks of 256 tokens (omlx, rapid-mlx); layers: plain"
    )
    (omlx, rapid), (same, other) = ([each["head"] for each in one["budgets"]] for one in (own, blocks))
    assert omlx == same
    assert rapid < other


@pytest.mark.parametrize(("level", "code"), [("error", 1), ("never", 0)])
def test_fail_on(tplaudit, level: str, code: int) -> None:
    done = run(tplaudit, "dropping", "--fail-on", level, "--json")
    assert done.returncode == code
    assert json.loads(done.stdout)["verdict"] == "fail"


def test_seconds_from_a_calibration_say_so(tplaudit, tmp_path: Path) -> None:
    points = [
        {"new_tokens": new, "depth": depth, "seconds": [0.01 + new / 1000 + depth / 1e5]}
        for new in (50, 200, 900)
        for depth in (0, 300)
    ]
    machine = {"system": "Darwin arm64", "processor": "Apple M9", "cores": 8, "memory_bytes": None}
    model = {"source": "big", "architecture": "llama", "config": "0" * 64}
    made = {"model": model, "machine": machine, "versions": {}, "weights": "4 bits", "blas": "metal"}
    file = tmp_path / "measured.json"
    file.write_text(json.dumps({**made, "measured": "2026-11-30", "points": points}))
    chat = ("--transcripts", fixtures.transcript("chat"), "-p", "omlx", "--max-seconds", "0.5")
    done = run(tplaudit, "in-place", *chat, "--calibration", file)
    assert done.returncode == 1
    assert "1 of 1 budgets not kept" in done.stdout
    assert "Note: seconds are predicted from a calibration of big on Apple M9" in done.stdout
    assert "with an error of " in done.stdout
    assert refused(run(tplaudit, "in-place", *chat, "--calibration", file, "--prefill-rate", "9"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--format", "json=out", "--format", "sarif=./out"],
        ["--format", "json=missing/out"],
        ["--transcripts", ""],
        ["--max-avoidable-tokens", "9" * 400],
        ["--prefill-rate", "nan"],
        ["--format", "xml"],
        ["--format", "sarif="],
        ["--format", "json", "--format", "text"],
        ["--json", "--format", "sarif"],
        ["--format", "text", "--format", "github", "--output", "x"],
        ["--allow", "regressed:*"],
        ["--max-avoidable-tokens", "many"],
        ["--max-seconds", "3"],
        ["--config", "missing.toml"],
        ["--kwargs", "x"],
        ["--transcripts", "missing"],
    ],
)
def test_usage_errors(tplaudit, arguments: list[str]) -> None:
    assert refused(run(tplaudit, "newline", *arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--base", STRICT],
        ["--head", STRICT],
        ["--base", "-", "--head", "-"],
        ["--base", STRICT, "--head", "missing.jinja"],
        ["--base", STRICT, "--head", STRICT, STRICT],
        ["--base", "git:nowhere:x.jinja", "--head", STRICT],
    ],
)
def test_sides_that_are_missing(tplaudit, arguments: list[object]) -> None:
    assert refused(tplaudit("gate", *arguments))


def test_a_template_that_is_no_jinja_is_an_error_and_not_a_pass(tplaudit, tmp_path: Path) -> None:
    broken = tmp_path / "broken.jinja"
    broken.write_text("{% for m in %}")
    said = refused(tplaudit("gate", "--base", STRICT, "--head", broken))
    assert "broken.jinja:1: not a valid chat template" in said


def test_a_gate_that_checked_nothing_fails(tplaudit, tmp_path: Path) -> None:
    never = tmp_path / "never.jinja"
    never.write_text("{{ raise_exception('never') }}")
    done = tplaudit("gate", "--base", never, "--head", never, "--format", f"sarif={tmp_path / 'x.sarif'}")
    assert done.returncode == 1
    assert "nothing was checked" in done.stdout
    assert sarif(tmp_path / "x.sarif")["runs"][0]["results"][0]["ruleId"] == "nothing-checked"
    unmatched = run(
        tplaudit,
        "in-place",
        "--max-avoidable-tokens",
        "9@nobody",
        "--tokenizer",
        "characters",
        "--transcripts",
        fixtures.transcript("chat"),
        "--policy",
        "as-is",
    )
    assert unmatched.returncode == 1
    assert "nothing was checked: no transcript and policy have these names" in unmatched.stdout


@pytest.mark.parametrize(
    "arguments",
    [["--base", "-", "--head", "-"], ["--base", "-", STRICT, STRICT], ["--base", STRICT, "-", "-"]],
)
def test_stdin_is_read_once(tplaudit, arguments: list[object]) -> None:
    assert refused(tplaudit("gate", *arguments, stdin=STRICT.read_text())) == (
        "tplaudit: -: stdin can be read only once, and it would be for several templates; "
        "give the path of a file for all but one"
    )


def test_stdin_and_several_heads(tplaudit) -> None:
    done = tplaudit("gate", "--base", "-", "--head", STRICT, stdin=STRICT.read_text())
    assert (done.returncode, "nothing changed" in done.stdout) == (0, True)
    heads = [PAIRS / "in-place.jinja", PAIRS / "newline.jinja"]
    both = tplaudit("gate", "--base", STRICT, *heads, "--json")
    document = json.loads(both.stdout)
    assert both.returncode == 1
    assert [result["outcome"] for result in document["results"]] == ["fixed", "changed"]
    assert document["verdict"] == "fail"
    xml = tplaudit("gate", "--base", STRICT, *heads, "--format", "junit").stdout
    assert [suite.name for suite in JUnitXml.fromstring(xml.encode())] == [str(head) for head in heads]


def test_settings_of_the_folder(tplaudit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tplaudit.toml").write_text(
        f'[gate]\nbase = "{STRICT}"\nhead = "{PAIRS / "newline.jinja"}"\nallow = ["changed:plain/*"]\n'
        '[[gate.ignore]]\nrule = "prompt-changed"\nreason = "agreed in review"\n'
    )
    done = tplaudit("gate", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 0
    assert {change["accepted"] for change in document["changes"]} == {
        "allowed by changed:plain/*",
        "agreed in review",
    }
    monkeypatch.chdir(PAIRS)
    assert tplaudit("gate", "--config", tmp_path / "tplaudit.toml").returncode == 0
