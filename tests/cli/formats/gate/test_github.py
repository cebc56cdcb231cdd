import re

from gate_pairs import run


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
