"""CONTRIBUTING.md's guide, followed in a copy of the project: what it adds is there and works."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
#: `<!-- file: PATH -->`, `<!-- change: PATH -->` or `<!-- append: PATH -->`, and the block of code behind it.
STEP = re.compile(
    r"^<!-- (?P<kind>file|change|append): (?P<path>\S+) -->\n```\w+\n(?P<text>.*?)^```$", re.M | re.S
)
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def follow(guide: str, root: Path) -> list[str]:
    """Do what the guide says in a copy of the project; return the paths that it touches."""
    touched = []
    for step in STEP.finditer(guide):
        path, text = root / step["path"], step["text"]
        touched.append(step["path"])
        if step["kind"] == "file":
            assert not path.exists(), f"{path} is there already"
            path.write_text(text, encoding="utf-8")
        elif step["kind"] == "append":
            path.write_text(path.read_text(encoding="utf-8") + text, encoding="utf-8")
        else:
            lines = text.splitlines(keepends=True)
            old, new = ("".join(line[1:] for line in lines if line[0] in kept) for kept in (" -", " +"))
            before = path.read_text(encoding="utf-8")
            assert before.count(old) == 1, f"{step['path']} does not have, once:\n{old}"
            path.write_text(before.replace(old, new), encoding="utf-8")
    return touched


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project, with an example of each family added as the guide says."""
    root = tmp_path_factory.mktemp("guide") / "tplaudit"
    ignored = shutil.ignore_patterns("__pycache__", ".*", "bench")
    for name in ("cli", "probes", "fixtures", "docs", "tests"):
        shutil.copytree(ROOT / name, root / name, ignore=ignored)
    for path in [*ROOT.glob("*.py"), ROOT / "pyproject.toml"]:
        shutil.copy(path, root)
    follow(GUIDE, root)
    return root


def python(copy: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run Python in the copy."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy.parent)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def run(copy: Path, *arguments: object, module: str = "tplaudit.cli.app") -> str:
    """Return what a module of the copy prints."""
    done = python(copy, "-m", module, *arguments)
    assert done.returncode in (0, 1), done.stderr
    assert not done.stderr or "Traceback" not in done.stderr
    return done.stdout


def document(copy: Path, *arguments: object) -> dict:
    return json.loads(run(copy, *arguments, "--json"))


def test_the_guide_adds_one_of_each_family(copy: Path) -> None:
    paths = {step["path"] for step in STEP.finditer(GUIDE)}
    assert {
        "probes/policies/registry.py",
        "probes/caches/registry.py",
        "probes/causes/registry.py",
        "probes/transcripts/reader.py",
        "probes/findings.py",
    } <= paths
    # The example is that of the guide, not something that the project has anyway.
    with pytest.raises(AssertionError, match=r"is there already|does not have, once"):
        follow(GUIDE, copy)


def test_the_policy_is_listed_with_evidence_of_its_own(copy: Path) -> None:
    (policy,) = document(copy, "policies", "example-server")["policies"]
    assert (policy["name"], policy["cache"]) == ("example", "example")
    assert policy["evidence_of"] == {"system turns": "read", "requests of other APIs": "inferred"}
    assert policy["defaults"] == {"system": "hoist"}
    assert "an imaginary server" in policy["documentation"].casefold()
    listed = document(copy, "policies")["policies"]
    assert [each["name"] for each in listed][:2] == ["as-is", "example"]


def test_the_page_gets_its_example(copy: Path) -> None:
    code = "import sys; sys.path.insert(0, 'docs'); import generate, pathlib; " + (
        "print(generate.regenerated(pathlib.Path('docs/policies/example.md').read_text()))"
    )
    assert 'system    "Be brief.\\n\\nPlan mode is on."' in python(copy, "-c", code).stdout


def test_the_reader_and_the_policy_are_rendered(copy: Path, tmp_path: Path) -> None:
    session = tmp_path / "turns.jsonl"
    session.write_text(json.dumps({"turns": [["system", "a"], ["user", "b"], ["system", "c"]]}) + "\n")
    template = copy / "fixtures/templates/in-place.jinja"
    found = document(copy, "render", session, "--template", template, "-p", "example")
    (row,) = found["turns"][0]["policies"]
    assert "a\n\nc" in row["prompt"]
    session.write_text('{"turns": [1]}\n')
    done = python(copy, "-m", "tplaudit.cli.app", "render", session)
    assert (done.returncode, done.stdout) == (2, "")
    assert "turns.jsonl:1" in done.stderr and "list of pairs" in done.stderr


def test_the_cache_and_the_cause_are_replayed(copy: Path, tmp_path: Path) -> None:
    session = tmp_path / "turns.jsonl"
    first = [["system", "be brief"], ["user", "hello  "]]
    later = [["system", "be brief"], ["user", "hello"], ["assistant", "yes"], ["user", "and then?"]]
    session.write_text("".join(json.dumps({"turns": turns}) + "\n" for turns in (first, later)))
    template = tmp_path / "plain.jinja"
    template.write_text("{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}")
    found = document(copy, "replay", session, "--template", template, "-p", "example", "--engine", "tokens")
    (policy,) = found["policies"]
    assert policy["server_cache"]["kind"] == "example"
    assert "trailing-space" in json.dumps(policy)
    assert "white space at the end" in run(copy, "explain", "trailing-space")


def test_the_finding_is_listed_explained_and_found(copy: Path, tmp_path: Path) -> None:
    rules = [rule["id"] for rule in document(copy, "rules")["rules"]]
    assert rules[-1] == "tabs-in-prompt"
    assert run(copy, "explain", "tabs-in-prompt").startswith("# tabs-in-prompt\n")
    template = tmp_path / "tabs.jinja"
    template.write_text("{% for m in messages %}{{ m.role }}\t{{ m.content }}\n{% endfor %}")
    assert "tabs-in-prompt" in run(copy, "probe", template, "--json")


def test_the_tests_of_the_families_find_the_new_ones(copy: Path) -> None:
    printed = run(
        copy,
        *("-q", "-p", "no:cacheprovider", "-k", "example or second_list or documented or evidence"),
        *("tests/probes/policies/servers/test_example.py", "tests/probes/caches/servers/test_example.py"),
        *("tests/probes/policies/test_registry.py", "tests/probes/test_findings.py"),
        module="pytest",
    )
    assert re.search(r"^\d+ passed, \d+ deselected", printed, re.M), printed
