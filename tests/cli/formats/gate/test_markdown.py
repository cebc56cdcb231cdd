import re
from pathlib import Path

from gate_pairs import run


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
