"""The shipped pairs: one base, and five patches of it of which each does something else."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from tplaudit import fixtures

PAIRS = Path(fixtures.__file__).parent / "gate"
STRICT = PAIRS / "strict.jinja"
OUTCOMES = {
    "in-place": ("fixed", "pass"),
    "dropping": ("regressed", "fail"),
    "newline": ("changed", "fail"),
    "reformatted": ("cosmetic", "pass"),
    "breaks-tools": ("regressed", "fail"),
}


@pytest.mark.parametrize("llamacpp", [False, True], ids=["jinja", "both engines"])
@pytest.mark.parametrize("name", OUTCOMES)
def test_each_pair_gets_its_outcome(gate, name: str, llamacpp: bool) -> None:
    report = gate(STRICT, PAIRS / f"{name}.jinja", llamacpp=llamacpp)
    assert (report.outcome, report.verdict) == OUTCOMES[name]


def test_every_file_is_a_pair() -> None:
    assert {path.stem for path in PAIRS.glob("*.jinja")} == {"strict", *OUTCOMES}


def test_the_fix_is_all_that_is_told(gate) -> None:
    (change,) = gate(STRICT, PAIRS / "in-place.jinja").changes
    assert (change.kind, change.rule, change.base, change.head) == (
        "fixed",
        "system-raises",
        "raises",
        "in-place",
    )
    assert change.where == "everywhere"
    assert change.line == 33
    assert change.severity is None


def test_what_is_cured_and_what_breaks_are_told_apart(gate) -> None:
    report = gate(STRICT, PAIRS / "breaks-tools.jinja")
    told = [(change.kind, change.rule) for change in report.changes]
    assert told == [
        ("regressed", "text-lost"),
        ("regressed", "text-lost"),
        ("regressed", "history-rewritten"),
        ("fixed", "system-raises"),
        ("fixed", "system-raises"),
    ]
    assert {subject.group for subject in report.changes[0].subjects} == {"tools", "reasoning"}


def test_the_other_way_round(gate) -> None:
    outcomes = {name: gate(PAIRS / f"{name}.jinja", STRICT).outcome for name in OUTCOMES}
    assert outcomes == {
        "in-place": "regressed",
        "dropping": "fixed",
        "newline": "changed",
        "reformatted": "cosmetic",
        "breaks-tools": "regressed",
    }


def test_a_template_beside_itself_is_unchanged(gate) -> None:
    report = gate(STRICT, STRICT)
    assert (report.outcome, report.verdict, report.changes) == ("unchanged", "pass", ())
    assert report.compared > 150


def test_it_is_fast_and_imports_no_model_library() -> None:
    """Three times what transformers' renderer takes to import, and 3 s, both with the processor's time."""
    code = (
        "import sys, time, tplaudit.cli.app as app\n"
        f"sys.argv = ['tplaudit', 'gate', '--base', {str(STRICT)!r}, '--head', "
        f"{str(PAIRS / 'in-place.jinja')!r}, '--format', 'json']\n"
        "try:\n    app.main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'mlx', 'mlx_lm', 'transformers', 'tokenizers', 'numpy'} & set(sys.modules)\n"
        "print(time.process_time(), *heavy, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, *heavy = done.stderr.split()
    assert heavy == []
    renderer = "import time, transformers.utils.chat_template_utils; print(time.process_time())"
    imported = subprocess.run([sys.executable, "-c", renderer], capture_output=True, text=True, check=True)
    assert float(seconds) < max(3.0, 3 * float(imported.stdout.split()[-1]))


def test_the_clock_says_nothing(gate) -> None:
    text = "{% for m in messages %}{{ m.content }}\n{% endfor %}{{ strftime_now('%H:%M:%S.%f') }}"
    first = gate(text, text + "{# changed #}")
    time.sleep(0.01)
    assert first.outcome == "cosmetic"
