from pathlib import Path

CASES = Path(__file__).parents[2] / "cases"
COMMENT_ONLY = CASES / "14-comment-only-preserve-thinking" / "template.jinja"


def test_the_terminal_says_it_in_words(tplaudit) -> None:
    done = tplaudit("thinking", COMMENT_ONLY)
    assert done.returncode == 0
    for words in (
        "tool loop only",
        "preserve_thinking",
        "changes nothing, line 1",
        "oMLX sets preserve_thinking=true",
        "reasoning is kept within a tool loop only",
        "history does not have it before the same reply",
        "thinking-mention-without-effect",
    ):
        assert words in done.stdout
