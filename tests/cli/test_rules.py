import json

from commands import refused
from tplaudit.probes.findings import RULES


def test_rules_and_explain(tplaudit) -> None:
    listed = tplaudit("rules").stdout
    rules = json.loads(tplaudit("rules", "--json").stdout)["rules"]
    assert [rule["id"] for rule in rules] == list(RULES)
    for rule in RULES:
        assert rule in listed
    done = tplaudit("explain", "system-dropped")
    assert done.returncode == 0
    assert done.stdout.startswith("# system-dropped\n") and "**Why it matters.**" in done.stdout
    of_the_gate = tplaudit("explain", "text-lost")
    assert of_the_gate.returncode == 0
    assert of_the_gate.stdout.startswith("# text-lost\n\nThe text of a message is missing")
    said = refused(tplaudit("explain", "nothing"))
    assert "there is no rule or cause 'nothing'; see `tplaudit rules`" in said
