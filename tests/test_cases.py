"""Every folder of tests/cases: the expected prompts, errors and divergences, one character per token."""

import json
from pathlib import Path
from typing import Any

import pytest
from tplaudit.probes.models.model import load_model
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.replay.replay_report import PolicyReport
from tplaudit.probes.transcripts.reader import open_transcript

#: The ids of docs/causes.md for the cases' coarser words.
IDS = {
    "hoist": "system-hoisted",
    "note neighbour flip": "note-neighbour-flip",
    "thinking stripped": "thinking-stripped",
    "generation-prompt mismatch": "generation-prompt-mismatch",
    "tool serialisation": "tool-arguments-reserialised",
    "tools order": "tools-changed",
    "kwargs": "kwargs-changed",
    "volatile header": "volatile-text",
    "date": "template-clock",
    "template moves system": "template-moved-system",
}
#: Finer ids, where a case says `other`, and for the case whose template moves an unchanged tool list.
FINER = {
    ("05-system-between-tool-results", "as-is"): "history-rewritten",
    ("09-note-flip-assistant-arrives", "as-is"): "history-rewritten",
    ("09-note-flip-assistant-arrives", "hoist"): "history-rewritten",
    ("09-note-flip-assistant-arrives", "hoist+merge"): "history-rewritten",
    ("09-note-flip-assistant-arrives", "note+merge"): "history-rewritten",
    ("22-tools-before-last-user", "as-is"): "position-dependent-markup",
    ("22-tools-before-last-user", "hoist"): "position-dependent-markup",
    ("22-tools-before-last-user", "note"): "position-dependent-markup",
    ("32-strict-alternation", "note+merge"): "role-merged",
    ("34-trim-unless-last", "as-is"): "position-dependent-markup",
    ("34-trim-unless-last", "hoist"): "position-dependent-markup",
    ("34-trim-unless-last", "note"): "position-dependent-markup",
}

CASES = sorted(path.parent for path in (Path(__file__).parent / "cases").glob("*/case.json"))


def replay(folder: Path, policies: list[str]) -> dict[str, PolicyReport]:
    model = load_model(str(folder / "template.jinja"), tokenizer="characters")
    run = Replay(open_transcript(folder / "case.json"), model, [parse_policy(name) for name in policies])
    for _ in run.turns():
        pass
    return {policy.policy: policy for policy in run.report().policies}


def expectations() -> list[tuple[Path, str, dict[str, Any]]]:
    found = []
    for folder in CASES:
        case = json.loads((folder / "case.json").read_text())
        found += [(folder, policy, expected) for policy, expected in case["expect"]["policies"].items()]
    return found


def test_the_folders_are_there() -> None:
    assert len(CASES) >= 24


@pytest.mark.parametrize(
    ("folder", "policy", "expected"),
    [pytest.param(*each, id=f"{each[0].name}-{each[1]}") for each in expectations()],
)
def test_case(folder: Path, policy: str, expected: dict[str, Any]) -> None:
    turns = replay(folder, [policy])[policy].turns
    assert len(turns) == len(expected["requests"])
    for turn, request in zip(turns, expected["requests"], strict=True):
        if "error" in request:
            assert turn.error == request["error"]
            assert turn.prompt_tokens is turn.reused is turn.reprefill is turn.avoidable is None
        else:
            assert turn.prompt_tokens == request["chars"]
    for pair in expected["pairs"]:
        found = turns[pair["later"]].since_previous
        if "error" in pair:
            assert found is None
            continue
        assert found is not None
        assert found.chars == found.tokens == pair["shared_chars"]
        assert found.body_preserved is not pair["diverges"]
        assert found.generation_prompt_shared is pair["generation_prompt_shared"]
        if pair["diverges"]:
            message = found.message
            assert found.region == pair["region"]
            assert (message.index if message else None) == pair["index"]
            assert (message.role if message else None) == pair["role"]
            assert found.rendered_index == pair.get("rendered_index", found.rendered_index)
            assert found.was is not None
            assert found.cause == FINER.get((folder.name, policy), IDS.get(pair["cause"], pair["cause"]))
            assert found.confirmed is True
        else:
            assert found.region is found.message is found.rendered_index is found.was is None
            assert found.cause == IDS.get(pair["cause"], pair["cause"])
            assert found.confirmed is (None if pair["cause"] is None else True)


def test_policies_side_by_side_report_what_each_reports_alone() -> None:
    folder = next(folder for folder in CASES if folder.name.startswith("09"))
    names = ["as-is", "hoist", "note", "omlx"]
    together = replay(folder, names)
    for name in names:
        assert replay(folder, [name])[name] == together[name]
