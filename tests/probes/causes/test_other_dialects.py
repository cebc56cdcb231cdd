"""Requests of other dialects than OpenAI's chat: what they changed is told in their own terms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tplaudit.probes.conversation import Message, Request, Transcript
from tplaudit.probes.models.model import load_model
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.replay.replay_report import Divergence
from tplaudit.probes.templates.template import ChatTemplate

SYSTEM = "x-anthropic-billing-header: cc_version=2.1; cch={};\nYou pilot ships in all weathers and at night."


def sent(system: Any, turns: int) -> Request:
    messages: list[dict[str, Any]] = []
    for turn in range(turns):
        messages += [
            {"role": "user", "content": [{"type": "text", "text": f"Which tide on day {turn}?"}]},
            {"role": "assistant", "content": [{"type": "text", "text": f"The early one of day {turn}."}]},
        ]
    return Request(
        tuple(Message(each, index) for index, each in enumerate(messages[:-1])),
        dialect="anthropic-messages",
        system=system,
    )


def parted(first: Request, second: Request, policy: str = "omlx:route=messages") -> Divergence:
    run = Replay(
        Transcript("test", "anthropic-messages", lambda: iter([first, second])),
        load_model(None),
        [parse_policy(policy)],
    )
    for _ in run.turns():
        pass
    turn = run.report().policies[0].turns[1]
    assert turn.divergence is not None
    return turn.divergence


@pytest.mark.parametrize("blocks", [False, True], ids=["text", "blocks"])
def test_the_top_level_system_text_changed(blocks: bool) -> None:
    texts = [
        SYSTEM.format(stamp).replace("x-anthropic-billing-header", "Session") for stamp in ("1a2b3", "4c5d6")
    ]
    forms = [[{"type": "text", "text": text}] if blocks else text for text in texts]
    found = parted(sent(forms[0], 2), sent(forms[1], 3))
    assert (found.cause, found.confirmed) == ("volatile-text", True)
    assert found.message is not None
    assert (found.message.index, found.message.role) == (None, "system")
    assert found.chain[0].values is not None
    assert "1a2b3" in found.chain[0].values[0]
    assert "the top-level system text" in (found.evidence or "")


STYLED = (
    "{{ 'effort ' + reasoning_effort + '\\n' }}"
    "{%- for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor -%}"
    "{%- if add_generation_prompt %}{{ 'assistant: ' }}{% endif -%}"
)


def test_a_field_of_the_body_that_the_server_hands_on() -> None:
    requests = [
        Request(
            tuple(
                Message({"role": role, "content": text}, index)
                for index, (role, text) in enumerate(
                    [("user", "Which tide?"), ("assistant", "The early."), ("user", "Aye.")]
                )
            )[:length],
            fields={"reasoning_effort": effort},
        )
        for length, effort in ((1, "low"), (3, "high"))
    ]
    model = replace(load_model(None), template=ChatTemplate({"default": STYLED}, source="test"))
    run = Replay(Transcript("test", "openai-chat", lambda: iter(requests)), model, [parse_policy("vllm")])
    for _ in run.turns():
        pass
    found = run.report().policies[0].turns[1].divergence
    assert found is not None
    assert (found.cause, found.confirmed) == ("kwargs-changed", True)
    assert 'sent reasoning_effort "low" before and "high" now' in (found.evidence or "")
