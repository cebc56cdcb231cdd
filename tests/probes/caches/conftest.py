"""The prompts of one case, which caches cut differently."""

import json
from pathlib import Path

import pytest
from tplaudit.probes.models.model import load_model
from tplaudit.probes.transcripts.reader import open_transcript

CASE = Path(__file__).parents[2] / "cases" / "28-cache-granularity"


@pytest.fixture(scope="session")
def case_28():
    """What the case expects of caches, and its prompts, one character a token."""
    case = json.loads((CASE / "case.json").read_text(encoding="utf-8"))
    model = load_model(str(CASE / "template.jinja"), tokenizer="characters")
    requests = open_transcript(CASE / "case.json")
    prompts = [model.tokenizer.encode(model.template.render_request(request)) for request in requests]
    return case["expect"]["facts"]["granularity"], prompts
