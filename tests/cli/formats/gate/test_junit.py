from pathlib import Path

from gate_pairs import run
from junitparser import JUnitXml, Skipped
from tplaudit import fixtures


def test_junit(tplaudit, tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    run(
        tplaudit,
        "newline",
        *("--allow", "changed:plain/*"),
        *("--transcripts", fixtures.transcript("chat"), "--policy", "as-is", "--tokenizer", "characters"),
        *("--max-avoidable-tokens", "0@as-is", "--max-reprefill-ratio", "0"),
        *("--format", f"junit={path}"),
    )
    xml = JUnitXml.fromfile(str(path))
    (suite,) = xml
    cases = {case.name: case for case in suite}
    assert (xml.tests, xml.failures, xml.skipped) == (suite.tests, suite.failures, suite.skipped)
    assert suite.tests == len(cases)
    assert cases["placements"].is_passed
    assert isinstance(cases["plain/chat"].result[0], Skipped)
    assert "allowed by" in cases["plain/chat"].result[0].message
    (failure,) = cases["tools/round"].result
    assert failure.type == "prompt-changed"
    assert "+Ask zqanchorzq?⏎" in failure.text
    budgets = [case for case in cases.values() if case.classname == "tplaudit.budget"]
    assert [case.is_passed for case in budgets] == [True, False]
