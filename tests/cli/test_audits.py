from pathlib import Path

CASES = Path(__file__).parent.parent / "cases"

CLEAR = CASES / "15-clear-thinking-key" / "template.jinja"


def test_nothing_but_broken_templates(tplaudit, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jinja").write_text("{% if")
    done = tplaudit("thinking", tmp_path)
    assert done.returncode == 2
    assert done.stderr == "tplaudit: none of the inputs could be examined\n"


def test_one_of_several_that_is_not_there(tplaudit, tmp_path: Path) -> None:
    done = tplaudit("thinking", CLEAR, tmp_path / "no.jinja")
    assert done.returncode == 2
    assert done.stderr == f"tplaudit: {tmp_path / 'no.jinja'}: no such file or directory; check the path\n"
    assert "kept" in done.stdout
