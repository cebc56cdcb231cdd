from __future__ import annotations

from typing import Any

from tplaudit.probes.conversation import Message, Request, Transcript
from tplaudit.probes.models.model import load_model
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.replay.replay_report import ReplayFinding

RULES = "You look after the harbour, and say nothing that you do not know. " * 4
STEADY = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
LAST_FIRST = "<last>{{ messages[-1].content }}" + STEADY


def _found(template: str, tmp_path: Any, systems: list[str]) -> list[ReplayFinding]:
    file = tmp_path / "template.jinja"
    file.write_text(template)
    requests = [
        Request(
            (
                Message({"role": "system", "content": system}, 0),
                Message({"role": "user", "content": f"{number} is the question, is it not?"}, 1),
            )
        )
        for number, system in enumerate(systems)
    ]
    run = Replay(
        Transcript("test", "openai-chat", lambda: iter(requests)),
        load_model(str(file), tokenizer="characters"),
        [parse_policy("as-is")],
        block_size=1,
    )
    for _ in run.turns():
        pass
    return [each for each in run.report().findings if each.rule == "heads-share-less"]


def test_a_template_that_writes_the_last_message_first(tmp_path: Any) -> None:
    (finding,) = _found(LAST_FIRST, tmp_path, [RULES, RULES, RULES])
    assert finding.turns == (2, 3)
    assert "the server or the template" in finding.message
    # The prompts share "<last>" only; the question written first is found as the user's text.
    assert finding.tokens > 2 * len(RULES)


def test_a_client_that_puts_a_number_in_front(tmp_path: Any) -> None:
    (finding,) = _found(STEADY, tmp_path, [f"Agent {number}. {RULES}" for number in (1, 2)])
    assert finding.turns == (2,)
    assert "the client" in finding.message
    # "<system>Agent " is shared; the rest of the system text and "<user>" are not.
    assert finding.tokens == len(f"1. {RULES}<user>")


def test_heads_that_are_shared_or_unlike_are_nothing_to_speak_of(tmp_path: Any) -> None:
    assert _found(STEADY, tmp_path, [RULES, RULES]) == []
    assert (
        _found(STEADY, tmp_path, [RULES, "Write a title of at most five words for what follows here."]) == []
    )
