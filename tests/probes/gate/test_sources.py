"""The sides of a gate, with git among them."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from tplaudit.probes.errors import InputError
from tplaudit.probes.gate.gate import Gate, run_gate
from tplaudit.probes.gate.settings import GateSettings
from tplaudit.probes.gate.sources import (
    GitSource,
    MissingAtRevision,
    annotated_path,
    git_source,
    is_bare,
    load_side,
)
from tplaudit.probes.models.template_files import load_template
from tplaudit.probes.thinking.thinking import examine_thinking

TEXT = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository with a template, and a model with a named template, in one commit."""
    git(tmp_path, "init", "-q", "-b", "main")
    model = tmp_path / "model"
    (model / "additional_chat_templates").mkdir(parents=True)
    (tmp_path / "chat.jinja").write_text(TEXT)
    (model / "chat_template.jinja").write_text(TEXT)
    (model / "additional_chat_templates" / "rag.jinja").write_text("rag" + TEXT)
    (model / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>"}))
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_at_a_revision(repository: Path) -> None:
    (repository / "chat.jinja").write_text("changed")
    template = load_side("git:HEAD:chat.jinja")
    assert template.text == TEXT
    assert template.source == "git:HEAD:chat.jinja"
    assert template.special_tokens["bos_token"] == "<bos>"


def test_a_model_at_a_revision(repository: Path) -> None:
    template = load_side("git:main:model")
    assert set(template.sources) == {"default", "rag"}
    assert template.special_tokens["bos_token"] == "<s>"


def test_the_path_of_the_other_side(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_side("git:HEAD", other="chat.jinja").text == TEXT
    assert load_side("git:HEAD", other="git:HEAD:chat.jinja").text == TEXT
    assert load_side("git:HEAD", other=str(repository / "chat.jinja")).text == TEXT
    monkeypatch.chdir(repository / "model")
    assert set(load_side("git:HEAD", other=".").sources) == {"default", "rag"}
    assert load_side("git:HEAD", other="chat_template.jinja").text == TEXT
    assert load_side("git:HEAD:../chat.jinja").text == TEXT


def test_what_servers_know_of_the_model_is_no_change_of_the_template(repository: Path) -> None:
    """oMLX hands reasoning over in another way to models of some types, which config.json names."""
    text = (
        "{% for m in messages %}{{ m.role }}{{ m.reasoning_content }}{{ m.content.split('</think>')[-1] }}"
        "{% endfor %}"
    )
    (repository / "model" / "chat_template.jinja").write_text(text)
    (repository / "model" / "config.json").write_text(json.dumps({"model_type": "minimax_m3"}))
    shutil.rmtree(repository / "model" / "additional_chat_templates")
    (repository / "chat.jinja").write_text(text)
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "second")
    given = examine_thinking(load_template("model")).omlx.history
    assert given != examine_thinking(load_template("chat.jinja")).omlx.history
    for base, head in (("git:HEAD", "model"), ("chat.jinja", "model"), ("model", "git:HEAD:chat.jinja")):
        report = run_gate(Gate(GateSettings(base=base, head=head), llamacpp=False))
        assert report.changes == ()


def test_what_is_not_there(repository: Path) -> None:
    with pytest.raises(MissingAtRevision):
        load_side("git:HEAD:new.jinja")
    (repository / "untracked.jinja").write_text(TEXT)
    with pytest.raises(MissingAtRevision):
        load_side("git:HEAD", other="untracked.jinja")
    with pytest.raises(InputError) as raised:
        load_side("git:nowhere:chat.jinja")
    assert not isinstance(raised.value, MissingAtRevision)
    with pytest.raises(InputError, match="no path"):
        load_side("git:HEAD")
    with pytest.raises(InputError, match="outside the repository"):
        load_side("git:HEAD", other="/etc/hosts")


def test_before_the_first_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init", "-q")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingAtRevision):
        load_side("git:HEAD:chat.jinja")


def test_outside_any_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(InputError, match="not a git repository"):
        load_side("git:main:chat.jinja")


def test_reading_git_sources() -> None:
    assert git_source("model") is None
    assert git_source("git:HEAD~1:a/b.jinja") == GitSource("HEAD~1", "a/b.jinja")
    assert git_source("git:HEAD:") == GitSource("HEAD", "")
    for broken in ("git:", "git::x", "git:HEAD"):
        with pytest.raises(InputError):
            git_source(broken)


def test_bare_templates(repository: Path) -> None:
    assert is_bare("-")
    assert is_bare("chat.jinja")
    assert is_bare("git:HEAD:chat.jinja")
    assert not is_bare("model")
    assert not is_bare("model/tokenizer_config.json")
    assert not is_bare("git:HEAD:model")


def test_files_of_annotations(repository: Path) -> None:
    assert annotated_path("chat.jinja") == "chat.jinja"
    assert annotated_path(str(repository / "chat.jinja")) == "chat.jinja"
    assert annotated_path("model") == "model/chat_template.jinja"
    assert annotated_path("git:HEAD:chat.jinja") == "chat.jinja"
    assert annotated_path("-") is None


def test_a_bare_side_gets_the_other_side_s_tokens(repository: Path, gate) -> None:
    report = gate("git:HEAD:model/chat_template.jinja", "model")
    assert any("special tokens" in note for note in report.notes)
    assert not any(change.rule == "prompt-changed" for change in report.changes)
