import json
from pathlib import Path

from gate_pairs import PAIRS, run


def test_json(tplaudit, tmp_path: Path) -> None:
    first = run(tplaudit, "breaks-tools", "--json")
    document = json.loads(first.stdout)
    assert (document["schema"], document["verdict"], document["outcome"]) == (
        "tplaudit.gate/1",
        "fail",
        "regressed",
    )
    assert document["head"]["source"] == str(PAIRS / "breaks-tools.jinja")
    run(tplaudit, "breaks-tools", "--json", "--output", tmp_path / "out.json")
    assert (tmp_path / "out.json").read_text() == first.stdout
