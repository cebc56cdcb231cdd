"""`tplaudit render` as a person runs it."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from commands import refused
from rendered_turns import REMINDERS
from tplaudit.fixtures import template, transcript
from tplaudit.probes.policies.registry import names

# At a glance


# One policy


# Two compared


def test_two_policies(tplaudit) -> None:
    done = tplaudit("render", REMINDERS, "--turn", 1, "--diff", "omlx", "hoist")
    assert done.returncode == 0
    assert done.stdout.startswith("--- omlx, turn 1\n+++ hoist, turn 1\n@@ ")
    assert "\n-[/System note]<|im_end|>\n" in done.stdout


def test_two_turns_of_each_policy(tplaudit) -> None:
    done = tplaudit("render", REMINDERS, "--diff-turns", 2, 1, "-p", "note", "-p", "hoist", "--json")
    document = json.loads(done.stdout)
    assert [turn["turn"] for turn in document["turns"]] == [1, 2]
    assert [(diff["before"]["turn"], diff["after"]["turn"]) for diff in document["diffs"]] == [(2, 1)] * 2
    assert [diff["before"]["policy"] for diff in document["diffs"]] == ["note", "hoist"]
    for number, diff in enumerate(document["diffs"]):
        later, earlier = (document["turns"][n]["policies"][number]["prompt"] for n in (1, 0))
        assert later[: diff["shared_chars"]] == earlier[: diff["shared_chars"]]
        assert later[diff["shared_chars"]] != earlier[diff["shared_chars"]]
        assert diff["same"] is False


# JSON


@pytest.fixture(scope="module")
def document() -> dict:
    command = [sys.executable, "-m", "tplaudit.cli.app", "render", str(REMINDERS)]
    done = subprocess.run([*command, "--policy", "all", "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_every_turn_and_policy_with_every_name(document: dict) -> None:
    assert document["schema"] == "tplaudit.render/2"
    assert document["tplaudit"]
    assert [turn["turn"] for turn in document["turns"]] == [1, 2, 3]
    needed = {"policy", "messages", "prompt", "chars", "body_chars", "tokens", "error", "notes"}
    for turn in document["turns"]:
        assert [row["policy"] for row in turn["policies"]] == list(names())
        for row in turn["policies"]:
            assert needed <= set(row)
            assert len(row["notes"]) == len(row["actions"])
            values = [row[key] for key in ("prompt", "chars", "body_chars", "tokens", "text_missing_of")]
            assert all((value is None) == (row["error"] is not None) for value in values)
            if row["prompt"] is not None:
                assert row["chars"] == len(row["prompt"]) >= row["body_chars"]
                assert 0 < row["tokens"] < row["chars"]


def test_one_turn_and_the_last_turn_without_json(tplaudit, document: dict) -> None:
    done = tplaudit("render", REMINDERS, "--policy", "all", "--turn", 2, "--json")
    assert json.loads(done.stdout)["turns"] == [document["turns"][1]]
    assert "Turn 3 of " in tplaudit("render", REMINDERS, "-p", "hoist").stdout


def test_a_folder_of_templates(tplaudit, tmp_path: Path) -> None:
    (tmp_path / "b.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    (tmp_path / "a.jinja").write_bytes(b"\xff")
    done = tplaudit("render", REMINDERS, "-p", "as-is", "--model", tmp_path, "--turn", 1, "--json")
    bad, good = json.loads(done.stdout)["results"]
    assert done.returncode == 0
    assert bad["template"].endswith("a.jinja")
    assert "a.jinja" in bad["error"]
    assert good["turns"][0]["policies"][0]["prompt"] == "Be brief.What does the test say?Plan mode is on."
    assert "b.jinja" in tplaudit("render", REMINDERS, "-p", "as-is", "--model", tmp_path).stdout


@pytest.mark.skipif(find_spec("ggufdoctor") is None, reason="the extra llamacpp is not installed")
def test_the_other_engine(tplaudit, tmp_path: Path) -> None:
    path = tmp_path / "t.jinja"
    turns = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
    path.write_text(turns + "{{ strftime_now('%Y') }}{{ pad_token is defined }}")
    options = ("--model", path, "-p", "as-is", "--engine", "llamacpp", "--turn", 1)
    done = tplaudit("render", REMINDERS, *options, "--json")
    row = json.loads(done.stdout)["turns"][0]["policies"][0]
    assert row["llamacpp"]["engine"].startswith("llama.cpp b")
    assert row["llamacpp"]["transformers"].endswith("2026False")
    assert row["llamacpp"]["llamacpp"].endswith("2026True")
    at = row["llamacpp"]["difference"]["offset"]
    text = tplaudit("render", REMINDERS, *options).stdout
    assert f"≠ from character {at:,} on" in text
    assert "-2026False\n" in text
    assert "+2026True\n" in text


# Errors and exit codes


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--turn", 9), "there is no turn 9, only 3; give a smaller number"),
        (("--diff-turns", 1, 4), "there is no turn 4, only 3"),
        (("--diff-turns", 0, 1), "--diff-turns: turns count from 1"),
        (("--diff-turns", 1, 2, "--turn", 1), "--diff-turns: it names the turns already; leave out --turn"),
        (("--diff", "omlx", "hoist", "-p", "note"), "--diff: it names the policies already"),
        (("--diff", "omlx", "hoist", "--diff-turns", 1, 2), "--diff: two policies and two turns"),
        (("--diff", "omlx", "all"), "there is no policy 'all'"),
        (("--policy", "hoist:x=1"), "the policy hoist has no option 'x'"),
        (("--model", "missing.jinja"), "missing.jinja"),
    ],
)
def test_errors_are_one_line(tplaudit, options: tuple[object, ...], words: str) -> None:
    done = tplaudit("render", REMINDERS, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tplaudit: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_nothing_rendered_is_reported_and_exit_code_2(tplaudit) -> None:
    done = tplaudit("render", REMINDERS, "-p", "as-is", "--json", "--turn", 1)
    assert done.returncode == 2
    row = json.loads(done.stdout)["turns"][0]["policies"][0]
    assert row["prompt"] is row["text_missing_of"] is None
    assert row["error"].startswith("TemplateError: ")
    assert done.stderr.startswith("tplaudit: no turn rendered under any policy (TemplateError: ")


def test_heavy_libraries_are_not_loaded_for_a_bare_template() -> None:
    code = (
        "import sys; from tplaudit.cli.app import app\n"
        f"try: app(['render', {str(REMINDERS)!r}, '--model', {str(template('in-place'))!r}])\n"
        "except SystemExit: pass\n"
        "print([name for name in ('mlx', 'numpy', 'tokenizers', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "✓ in place" in done.stdout


def test_output_file(tplaudit, tmp_path: Path) -> None:
    out = tmp_path / "x.diff"
    done = tplaudit("render", REMINDERS, "--turn", 1, "--diff", "omlx", "hoist", "--output", out)
    assert (done.returncode, done.stdout) == (0, "")
    assert out.read_text().startswith("--- omlx, turn 1\n")


def test_a_model_that_is_no_template_is_told_first(tplaudit, tmp_path):
    empty = tmp_path / "empty.jinja"
    empty.write_text("")
    said = refused(tplaudit("render", transcript("chat"), "--model", empty))
    assert "the template renders nothing" in said


def test_it_runs_without_stderr(tplaudit):
    code = "import os, sys; os.close(2); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    done = subprocess.run(
        [sys.executable, "-c", code, "-m", "tplaudit.cli.app", "render", transcript("chat"), "--json"],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0
    assert json.loads(done.stdout)
