import re
from pathlib import Path

import jsonschema
import pytest
from gate_pairs import run, sarif


def test_sarif(tplaudit, tmp_path: Path) -> None:
    run(tplaudit, "newline", "--allow", "changed:plain/*", "--format", f"sarif={tmp_path / 'one.sarif'}")
    (first,) = sarif(tmp_path / "one.sarif")["runs"]
    rules = [rule["id"] for rule in first["tool"]["driver"]["rules"]]
    assert rules == ["prompt-changed"]
    accepted, failing = sorted(first["results"], key=lambda result: "suppressions" not in result)
    assert accepted["suppressions"] == [{"kind": "external", "justification": "allowed by changed:plain/*"}]
    for result in (accepted, failing):
        place = result["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"].endswith("fixtures/gate/newline.jinja")
        assert place["region"]["startLine"] == 36
        assert rules[result["ruleIndex"]] == result["ruleId"]
    fingerprints = [result["partialFingerprints"]["tplauditGate/v1"] for result in (accepted, failing)]
    assert len(set(fingerprints)) == 2
    text = (tmp_path / "one.sarif").read_text()
    assert not re.search(r"\d{4}-\d\d-\d\dT", text)
    run(tplaudit, "newline", "--allow", "changed:plain/*", "--format", f"sarif={tmp_path / 'two.sarif'}")
    assert (tmp_path / "two.sarif").read_text() == text
    run(tplaudit, "in-place", "--format", f"sarif={tmp_path / 'good.sarif'}")
    assert sarif(tmp_path / "good.sarif")["runs"][0]["results"] == []


def test_the_schema_refuses_what_is_no_sarif(tmp_path: Path) -> None:
    (tmp_path / "bad.sarif").write_text('{"version": "2.1.0", "runs": [{"results": [{"level": "bad"}]}]}')
    with pytest.raises(jsonschema.ValidationError):
        sarif(tmp_path / "bad.sarif")
