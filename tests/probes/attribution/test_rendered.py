"""Every folder of tests/cases: the expected rows of `tplaudit render`'s JSON."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tplaudit.probes.attribution.rendered import render_turn, turn_to_json
from tplaudit.probes.models.template_files import load_template
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.transcripts.grouping.conversations import continuations
from tplaudit.probes.transcripts.reader import open_transcript

CASES = sorted(path.parent for path in (Path(__file__).parents[2] / "cases").glob("*/case.json"))


def rows() -> list[Any]:
    found = []
    for folder in CASES:
        case = json.loads((folder / "case.json").read_text())
        for policy, expected in case["expect"]["policies"].items():
            for number, row in enumerate(expected["requests"]):
                found.append(
                    pytest.param(folder, policy, number, row, id=f"{folder.name}-{policy}-{number + 1}")
                )
    return found


@cache
def rendered(folder: Path, policy: str) -> list[dict[str, Any]]:
    template = load_template(folder / "template.jinja")
    requests = list(open_transcript(folder / "case.json"))
    turns = zip(continuations(requests), requests, strict=True)
    documents = [turn_to_json(render_turn(*turn, template, [parse_policy(policy)])) for turn in turns]
    assert [document["turn"] for document in documents] == list(range(1, len(documents) + 1))
    return [json.loads(json.dumps(document))["policies"][0] for document in documents]


@pytest.mark.parametrize(("folder", "policy", "number", "row"), rows())
def test_row(folder: Path, policy: str, number: int, row: dict[str, Any]) -> None:
    found = rendered(folder, policy)[number]
    assert found["policy"] == policy
    assert found["error"] == row.get("error")
    assert found["note_refused_at"] == row.get("note_refused_at")
    assert found["chars"] == row.get("chars")
    assert found["body_chars"] == row.get("body_chars")
    if "error" in row:
        assert found["prompt"] is found["text_missing_of"] is found["tokens"] is None
    else:
        assert len(found["prompt"]) == row["chars"]
        assert found["text_missing_of"] == row.get("text_missing_of", [])


def test_the_rows_cover_what_they_are_for() -> None:
    expected = [row.values[3] for row in rows()]
    for key in ("error", "note_refused_at", "text_missing_of", "body_chars"):
        assert any(key in row for row in expected)
