"""What a render shows on a terminal."""

import json
import re
from pathlib import Path

import pytest
from rendered_turns import CLAUDE, MESSAGES, REMINDERS, drawn, report
from tplaudit.probes.policies.registry import names


def rows(text: str) -> dict[str, str]:
    """The table: the cells behind each verdict, with the rows that belong to it."""
    found: dict[str, str] = {}
    verdict = ""
    for line in text.splitlines():
        if line.startswith("│"):
            cells = [cell.strip() for cell in line.strip("│").split("│")]
            verdict = cells[0] or verdict
            found[verdict] = f"{found.get(verdict, '')} {' '.join(cells[1:])}".strip()
    return found


def test_who_hoists_and_who_fails_before_a_strict_template() -> None:
    table = rows(drawn(report(CLAUDE, "strict", *names(), turn=12)))
    assert set(table) == {"✎ noted", "↥ hoisted", "✗ fails"}
    assert re.search(r"^mtplx\b", table["✎ noted"])
    for hoists in ("omlx", "omlx-strict", "hoist", "flyto-mlx", "fusion-mlx", "mlx-vlm"):
        assert re.search(rf"\b{hoists}\b(?!-)", table["↥ hoisted"])
    for fails in ("as-is", "rapid-mlx", "mlx-lm", "llama-cpp", "vllm", "lm-studio"):
        assert fails in table["✗ fails"]
    assert "TemplateError: A system message is allowed only" in table["✗ fails"]
    # oMLX gives every property of a tool a description, so its prompt is longer and has a row of its own.
    assert re.search(r"a note was refused at 6: omlx\b(?!-).*: note, note\+merge", table["↥ hoisted"])


@pytest.mark.parametrize(
    ("name", "verdict"), [("in-place", "✓ in place"), ("moving", "↷ moved"), ("dropping", "∅ lost")]
)
def test_what_the_template_does_with_what_servers_leave_in_place(name: str, verdict: str) -> None:
    table = rows(drawn(report(CLAUDE, name, *names(), turn=12)))
    assert "as-is, " in table[verdict]
    assert "hoist, hoist+merge" in table["↥ hoisted"]
    assert ("omlx-strict" in table[verdict]) is (name == "in-place")


def test_a_turn_whose_system_turns_fared_differently_names_them() -> None:
    text = drawn(report(MESSAGES, "in-place", "flyto-mlx", "vllm", turn=4))
    assert "✎ noted 1, 4, 10" in text
    assert "∅ dropped 7" in text
    assert "System turns that are not first: 1, 4, 7, 10" in text


def test_the_head_names_the_routes_that_count() -> None:
    assert "Route: messages (the request's own; choose another" in drawn(report(MESSAGES, "in-place", "omlx"))
    assert "Route: chat (the request" in drawn(report(CLAUDE, "in-place", "as-is", "vLLM", turn=2))
    assert "Route: none\n" in drawn(report(CLAUDE, "in-place", "omlx:route=none,engine=vlm", turn=2))
    several = drawn(report(MESSAGES, "in-place", "omlx", "hoist", "vllm:chat-completions", "sglang"))
    assert "Routes: messages for omlx, sglang; chat for vllm:chat-completions" in several
    assert "Route" not in drawn(report(CLAUDE, "in-place", "as-is", "llama-cpp", turn=2))


def test_the_table_fits_a_narrow_terminal() -> None:
    text = drawn(report(MESSAGES, "in-place", *names(), turn=10), width=80)
    assert max(len(line) for line in text.splitlines() if line.startswith(("│", "┏"))) <= 80
    assert "tokens" not in text


def test_without_system_turns_there_is_nothing_to_do(tmp_path: Path) -> None:
    path = tmp_path / "plain.jsonl"
    path.write_text(json.dumps({"messages": [{"role": "user", "content": "Hello."}]}))
    assert "· nothing" in drawn(report(path, "strict", "omlx", "as-is"))


def test_many_outcomes_are_shown_only_when_asked_for() -> None:
    shown = report(REMINDERS, "in-place", "as-is", "omlx", "hoist", "flyto-mlx", turn=3)
    assert "What was done" not in drawn(shown)
    full = drawn(shown, full=True)
    assert full.count("What was done") == 4
    assert "Prompt: the same as under omlx" in full
