"""Requests through an engine that only counts, and the prompts of one case, which caches cut differently."""

import json
from pathlib import Path

import numpy as np
import pytest
from tplaudit.probes.caches.base import PromptBoundaries
from tplaudit.probes.models.model import load_model
from tplaudit.probes.transcripts.reader import open_transcript

CASE = Path(__file__).parents[2] / "cases" / "28-cache-granularity"


@pytest.fixture(scope="session")
def turn():
    """One request through a cache; returns what was reused."""

    def run(cache, tokens, marks=None):
        ids = np.array(tokens, np.int32)
        match = cache.match(ids)
        with cache.pin(match):
            cache.store(ids, match=match, marks=marks or PromptBoundaries())
        return match.reused

    return run


@pytest.fixture(scope="session")
def case_28():
    """What the case expects of caches, and its prompts, one character a token."""
    case = json.loads((CASE / "case.json").read_text(encoding="utf-8"))
    model = load_model(str(CASE / "template.jinja"), tokenizer="characters")
    requests = open_transcript(CASE / "case.json")
    prompts = [model.tokenizer.encode(model.template.render_request(request)) for request in requests]
    return case["expect"]["facts"]["granularity"], prompts
