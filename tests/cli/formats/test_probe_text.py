import json
from pathlib import Path

from tplaudit.fixtures import template

STRICT, IN_PLACE, DROPPING, MOVING = map(template, ("strict", "in-place", "dropping", "moving"))


def test_the_terminal_output_says_what_a_template_does(tplaudit) -> None:
    sentences = {
        STRICT: ("fails with an error when a system turn is not first", "✗ error", "the request fails"),
        IN_PLACE: (
            "writes every system turn at its own place",
            "✓ in place",
            "the prompt before it does not change",
        ),
        DROPPING: ("leaves out a system turn that is not first", "∅ lost", "the model never sees it"),
        MOVING: ("it is written in the first system block at the front", "↷ moved", "is computed again"),
    }
    for path, texts in sentences.items():
        out = tplaudit("probe", path).stdout
        for text in texts:
            assert text in out, (path, text)
        assert "vllm:route=messages" in out and "llama-cpp" in out and "lm-studio" in out
        assert "after a tool result" in out and "before an assistant turn" in out
        assert "\x1b" not in out
        assert all(
            len(line) <= 160 or line.startswith(("✗", "!", "·", "    help")) for line in out.splitlines()
        )


def test_show_prints_what_a_bug_report_needs(tplaudit) -> None:
    done = tplaudit("probe", IN_PLACE, "--show", "tool/tail")
    assert done.returncode == 0
    assert "verdict    in-place" in done.stdout
    assert done.stdout.count('"role": "system"') == 2
    assert '"role": "tool"' in done.stdout and "<- the system turn in question" in done.stdout
    assert "prompt of the messages before it" in done.stdout and "  | <|im_start|>assistant" in done.stdout
    raised = tplaudit("probe", STRICT, "--show", "user/before-user,no-leading,developer,tools").stdout
    assert "error      TemplateError: A system message is allowed only as the first message." in raised
    assert "(none: the template raised)" in raised
    value = json.loads(tplaudit("probe", STRICT, "--show", "tool/before-tool", "--json").stdout)
    assert (value["shape"], value["schema"]) == ("between-results", "tplaudit.placement/1")


def test_the_lines_of_a_matrix_with_two_halves(tplaudit) -> None:
    path = Path(__file__).parents[2] / "cases" / "07-leading-developer-later-system" / "template.jinja"
    out = tplaudit("probe", path).stdout
    assert "depends on its place" in out
    assert "after a user turn, with a leading system message" in out
    assert "after a user turn, without a leading system message" in out
