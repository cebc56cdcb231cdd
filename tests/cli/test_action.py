"""The GitHub Action's shell steps and the pre-commit hook, end to end in a scratch repository."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tplaudit import fixtures

ROOT = Path(__file__).resolve().parents[2]
PAIRS = Path(fixtures.__file__).parent / "gate"
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
BIN = str(Path(sys.executable).parent)


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with one template in one commit, and a command `tplaudit` on the path."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    shutil.copy(PAIRS / "strict.jinja", folder / "chat_template.jinja")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    commands = tmp_path / "bin"
    commands.mkdir()
    command = commands / "tplaudit"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tplaudit.cli.app "$@"\n')
    command.chmod(0o755)
    return folder


def patch(repository: Path, name: str) -> None:
    shutil.copy(PAIRS / f"{name}.jinja", repository / "chat_template.jinja")
    git(repository, "add", ".")


# The action


class Runner:
    """Runs the shell steps of the action as GitHub's runner would, in a repository's folder."""

    def __init__(self, repository: Path, inputs: dict[str, str], event: dict[str, str]) -> None:
        self.repository = repository
        self.inputs = {name: value.get("default", "") for name, value in ACTION["inputs"].items()} | inputs
        self.event = event
        self.outputs: dict[str, str] = {}
        self.summary = repository.parent / "summary.md"

    def step(self, name: str) -> subprocess.CompletedProcess[str]:
        """Run one step."""
        step = next(each for each in ACTION["runs"]["steps"] if each.get("name") == name)
        file = self.repository.parent / "output"
        file.write_text("")
        environment = {
            **os.environ,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "GITHUB_OUTPUT": str(file),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            **{key: self.value(text) for key, text in step["env"].items()},
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.repository,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        for line in file.read_text().splitlines():
            key, _, value = line.partition("=")
            self.outputs[f"steps.{step['id']}.outputs.{key}"] = value
        return done

    def value(self, text: str) -> str:
        """Evaluate an expression: the first of its alternatives that is not empty."""
        match = re.fullmatch(r"\$\{\{ (.+) \}\}", text)
        assert match is not None
        known = {f"inputs.{name}": value for name, value in self.inputs.items()} | self.event | self.outputs
        return next((known[name] for name in match[1].split(" || ") if known.get(name)), "")


def test_every_input_is_used_and_no_script_holds_an_expression() -> None:
    steps = ACTION["runs"]["steps"]
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    assert all(f"inputs.{name} " in text for name in ACTION["inputs"])
    assert all("${{" not in step.get("run", "") for step in steps)
    assert all(step["shell"] == "bash" for step in steps if "run" in step)


def test_a_pull_request(repository: Path) -> None:
    before = git(repository, "rev-parse", "HEAD")
    patch(repository, "newline")
    git(repository, "commit", "-q", "-m", "second")
    event = {"github.event.pull_request.base.sha": before, "github.event.before": "f" * 40}
    runner = Runner(repository, {}, event)
    assert runner.step("Find what was before").returncode == 0
    assert runner.outputs["steps.base.outputs.base"] == f"git:{before}"
    done = runner.step("Compare")
    assert done.returncode == 1, done.stderr
    assert "≠ changed prompt-changed chat_template.jinja:36" in done.stdout
    assert "::error file=chat_template.jinja,line=36" in done.stdout
    assert "❌ fail" in runner.summary.read_text()
    assert (repository / "tplaudit.sarif").is_file()
    assert (repository / "tplaudit.junit.xml").is_file()
    allowed = Runner(repository, {"args": "--allow\nchanged:prompt-changed\n"}, event)
    allowed.step("Find what was before")
    assert allowed.step("Compare").returncode == 0


def test_a_shallow_checkout_fetches_the_commit(repository: Path) -> None:
    before = git(repository, "rev-parse", "HEAD")
    patch(repository, "in-place")
    git(repository, "commit", "-q", "-m", "second")
    git(repository, "config", "uploadpack.allowAnySHA1InWant", "true")
    shallow = repository.parent / "shallow"
    git(repository.parent, "clone", "-q", "--depth=1", f"file://{repository}", str(shallow))
    runner = Runner(shallow, {"head": "chat_template.jinja"}, {"github.event.before": before})
    assert runner.step("Find what was before").returncode == 0
    done = runner.step("Compare")
    assert done.returncode == 0, done.stderr
    assert "✓ fixed system-raises" in done.stdout


def test_no_commit_to_compare_with(repository: Path) -> None:
    for before in ("", "0" * 40):
        done = Runner(repository, {}, {"github.event.before": before}).step("Find what was before")
        assert done.returncode == 2
        assert "::error::this event names no commit" in done.stdout
    runner = Runner(repository, {"base": "git:HEAD:chat_template.jinja"}, {})
    assert runner.step("Find what was before").returncode == 0
    assert runner.step("Compare").returncode == 0


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a stand-in for the action's folder, which pip installs aside and without the network."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "stand-in"\nversion = "1"\n[tool.setuptools]\npy-modules = []\n'
    )
    for name, value in {"NO_DEPS": "1", "NO_BUILD_ISOLATION": "0", "NO_INDEX": "1"}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "target"))
    return package


@pytest.mark.parametrize("given", [False, True], ids=["the action itself", "another package"])
def test_the_package_is_installed(repository: Path, package: Path, tmp_path: Path, given: bool) -> None:
    inputs = {"package": str(package)} if given else {}
    event = {"github.action_path": "nowhere" if given else str(package)}
    done = Runner(repository, inputs, event).step("Install tplaudit")
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "target").glob("stand_in-1.dist-info"))


def test_no_module_of_the_repository_is_run(repository: Path, package: Path) -> None:
    for name in ("pip", "jinja2", "json", "tplaudit", "typer"):
        (repository / f"{name}.py").write_text(f"raise SystemExit('{name} of the repository was run')\n")
    before = git(repository, "rev-parse", "HEAD")
    patch(repository, "in-place")
    git(repository, "commit", "-q", "-m", "second")
    runner = Runner(repository, {}, {"github.event.before": before, "github.action_path": str(package)})
    for name in ("Install tplaudit", "Find what was before", "Compare"):
        done = runner.step(name)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "✓ fixed system-raises" in done.stdout


# The hook


def pre_commit(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PATH": f"{repository.parent / 'bin'}:{BIN}:{os.environ['PATH']}",
        "PRE_COMMIT_HOME": str(repository.parent / "cache"),
    }
    return subprocess.run(
        [sys.executable, "-m", "pre_commit", *arguments],
        cwd=repository,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def hooked(repository: Path) -> Path:
    """Return the repository with the project's hook, run from the installed package.

    As a hook of another repository pre-commit would install the package anew, from the network.
    """
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    config = {"repos": [{"repo": "local", "hooks": [hook | {"language": "system"}]}]}
    (repository / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "hook")
    return repository


def test_the_manifest_is_valid() -> None:
    done = pre_commit(ROOT, "validate-manifest", str(ROOT / ".pre-commit-hooks.yaml"))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        ("in-place", 0, ""),
        ("reformatted", 0, ""),
        ("newline", 1, "≠ changed prompt-changed chat_template.jinja:36"),
        ("breaks-tools", 1, "✗ regressed text-lost"),
    ],
)
def test_a_commit_of_a_template(hooked: Path, name: str, code: int, text: str) -> None:
    patch(hooked, name)
    done = pre_commit(hooked, "run")
    assert done.returncode == code, done.stdout + done.stderr
    assert text in done.stdout


def test_new_and_other_files_pass(hooked: Path) -> None:
    shutil.copy(PAIRS / "dropping.jinja", hooked / "new.jinja")
    (hooked / "README.md").write_text("text")
    git(hooked, "add", ".")
    done = pre_commit(hooked, "run", "--verbose")
    assert done.returncode == 0, done.stdout
    assert "the template is new" in done.stdout


def test_as_git_runs_it(hooked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRE_COMMIT_HOME", str(hooked.parent / "cache"))
    monkeypatch.setenv("PATH", f"{hooked.parent / 'bin'}:{BIN}:{os.environ['PATH']}")
    assert pre_commit(hooked, "install").returncode == 0
    patch(hooked, "dropping")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        git(hooked, "commit", "-q", "-m", "drops reminders")
    assert "system-dropped" in refused.value.stderr
    patch(hooked, "in-place")
    git(hooked, "commit", "-q", "-m", "keeps reminders")


# The page


PAGE = (ROOT / "docs" / "ci-workflow.md").read_text(encoding="utf-8")


def blocks() -> list[Any]:
    """Return the YAML of the page."""
    return [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]


def test_the_page_s_workflow(repository: Path) -> None:
    workflow = blocks()[0]
    job = workflow["jobs"]["gate"]
    script = next(step["run"] for step in job["steps"] if step.get("name") == "Gate")
    environment = {**os.environ, **job["env"], "PATH": f"{repository.parent / 'bin'}:{os.environ['PATH']}"}
    environment["GITHUB_STEP_SUMMARY"] = str(repository.parent / "summary.md")

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-e", "-c", script],
            cwd=repository,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    patch(repository, "breaks-tools")
    git(repository, "commit", "-q", "-m", "broken")
    broken = run()
    assert broken.returncode == 1
    assert "✗ regressed text-lost" in broken.stdout
    assert "::error file=chat_template.jinja,title=regressed%3A text-lost::" in broken.stdout
    git(repository, "reset", "-q", "--hard", "HEAD~1")
    patch(repository, "in-place")
    git(repository, "commit", "-q", "-m", "repaired")
    assert run().returncode == 0


def test_the_page_s_other_examples(repository: Path) -> None:
    _, action, remote, local = blocks()
    inputs = action[1]["with"]
    assert set(inputs) <= set(ACTION["inputs"])
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert remote["repos"][0]["hooks"][0]["id"] == hook["id"]
    shown = local["repos"][0]["hooks"][0]
    assert {key: shown[key] for key in ("id", "name", "entry", "files", "require_serial")} == {
        key: hook[key] for key in ("id", "name", "entry", "files", "require_serial")
    }
    for name in ACTION["inputs"]:
        assert f"`{name}`" in PAGE
