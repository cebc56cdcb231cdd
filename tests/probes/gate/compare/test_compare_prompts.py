from pathlib import Path

from tplaudit import fixtures

PAIRS = Path(fixtures.__file__).parent / "gate"
STRICT = PAIRS / "strict.jinja"


def test_a_silent_drop_is_a_regression_although_the_prefix_stays(gate) -> None:
    report = gate(STRICT, PAIRS / "dropping.jinja")
    told = {(change.kind, change.rule, change.base, change.head) for change in report.changes}
    assert told == {
        ("regressed", "system-dropped", "raises", "dropped"),
        ("regressed", "probe-false-positive", "absent", "found"),
    }


def test_a_newline_is_shown_as_a_diff_on_its_line(gate) -> None:
    (change,) = gate(STRICT, PAIRS / "newline.jinja").changes
    assert (change.rule, change.base, change.head) == ("prompt-changed", "", "\n")
    assert PAIRS.joinpath("newline.jinja").read_text().splitlines()[change.line - 1].strip() == (
        r"{{- '<|im_start|>user\n' + content + '\n<|im_end|>\n' -}}"
    )
    assert change.diff[1:4] == ("-Ask zqanchorzq?<|im_end|>⏎", "+Ask zqanchorzq?⏎", "+<|im_end|>⏎")
    groups = {subject.group for subject in change.subjects}
    assert groups == {"plain", "tools", "reasoning", "system"}
