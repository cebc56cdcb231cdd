import re
from pathlib import Path

import pytest
from gate_pairs import STRICT, run


@pytest.mark.parametrize(
    ("head", "code"),
    [("in-place", 0), ("dropping", 1), ("newline", 1), ("reformatted", 0), ("breaks-tools", 1)],
)
def test_exit_codes_and_text(tplaudit, head: str, code: int) -> None:
    done = run(tplaudit, head)
    assert done.returncode == code
    assert done.stderr == ""
    assert ("✓ pass" if code == 0 else "✗ fail") in done.stdout


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
