"""Patterns over the turns of a replay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tplaudit.fixtures import template, transcript
from tplaudit.probes.conversation import Message, Request, Transcript
from tplaudit.probes.models.model import load_model
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.replay.replay_report import ReplayFinding, ReplayReport
from tplaudit.probes.templates.template import ChatTemplate
from tplaudit.probes.transcripts.reader import open_transcript

STEADY = (
    "{%- if tools %}{{ tools | tojson }}{% endif -%}"
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
    "{%- if m.reasoning_content %}{{ m.reasoning_content + '\\n' }}{% endif -%}"
    "{{ m.content + '<|im_end|>\\n' }}{% endfor -%}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}"
)


def report(requests: list[Request], policy: str = "as-is", block_size: int = 1) -> ReplayReport:
    loaded = replace(load_model(None), template=ChatTemplate({"default": STEADY}, source="test"))
    run = Replay(
        Transcript("test", "openai-chat", lambda: iter(requests)),
        loaded,
        [parse_policy(policy)],
        block_size=block_size,
    )
    for _ in run.turns():
        pass
    return run.report()


def found(done: ReplayReport, rule: str) -> ReplayFinding | None:
    return next((each for each in done.findings if each.rule == rule), None)


def growing(turns: int, stamp: Any = lambda turn: "", tools: Any = lambda turn: None) -> list[Request]:
    requests = []
    messages: list[dict[str, Any]] = []
    for turn in range(turns):
        messages = [*messages, {"role": "user", "content": f"Question {turn} on the tide."}]
        system = {
            "role": "system",
            "content": f"You pilot ships, day and night, in any weather. {stamp(turn)}",
        }
        whole = tuple(Message(each, index) for index, each in enumerate([system, *messages]))
        reply = {"role": "assistant", "content": f"Answer {turn}.", "reasoning_content": f"Thought {turn}."}
        requests.append(Request(whole, tools=tools(turn), reply=reply))
        messages = [*messages, reply]
    return requests


def test_nothing_to_say_about_a_conversation_that_only_grows() -> None:
    assert report(growing(5)).findings == ()


def test_volatile_text_has_its_values_and_its_period() -> None:
    every = found(
        report(growing(5, lambda turn: f"x-anthropic-billing-header: cch={turn}a{turn}f")), "volatile-text"
    )
    assert every is not None
    assert every.turns == (2, 3, 4, 5)
    assert "0a0f" in every.message
    assert "1a1f" in every.message
    assert "every turn" in every.message
    assert every.confidence == "confirmed"
    assert every.tokens > 0
    second = found(report(growing(9, lambda turn: f"Count: {turn // 2}")), "volatile-text")
    assert second is not None
    assert "every 2 turns" in second.message


def test_known_clients_have_their_setting_named() -> None:
    done = report(growing(3, lambda turn: f"\nx-anthropic-billing-header: cch={turn}a{turn}f;\nBe brief."))
    parted = done.policies[0].turns[1].divergence
    assert parted is not None and parted.remedy is not None
    assert parted.remedy.set == "CLAUDE_CODE_ATTRIBUTION_HEADER=0"
    assert "settings.json" in (parted.remedy.paste or "")


def test_tools_that_come_and_go() -> None:
    tool = {"type": "function", "function": {"name": "tide", "parameters": {}}}
    done = report(growing(4, tools=lambda turn: (tool,) if turn % 2 else (tool, {**tool, "strict": True})))
    finding = found(done, "tools-come-and-go")
    assert finding is not None
    # from the third turn on, an older prompt with the same tools is closer, and whole
    assert finding.turns == (2, 3, 4)


def test_a_client_that_drops_reasoning() -> None:
    requests = growing(3)
    without = [
        request.replace(
            messages=tuple(
                Message(
                    {key: value for key, value in each.data.items() if key != "reasoning_content"}, each.index
                )
                for each in request.messages
            )
        )
        for request in requests
    ]
    finding = found(report(without), "client-drops-reasoning")
    assert finding is not None
    assert finding.turns == (2, 3)
    assert found(report(requests), "client-drops-reasoning") is None


def test_block_rests_are_counted() -> None:
    done = report(growing(5), block_size=60)
    finding = found(done, "block-rests")
    assert finding is not None
    lost = sum(loss.tokens for turn in done.policies[0].turns for loss in turn.losses)
    assert finding.tokens == lost
    assert finding.severity == "note"


def test_a_client_that_rewrites_history() -> None:
    requests = growing(4)
    changed = requests[3].replace(
        messages=(
            requests[3].messages[0],
            Message({"role": "user", "content": "[cleared]"}, 1),
            *requests[3].messages[2:],
        )
    )
    finding = found(report([*requests[:3], changed]), "client-rewrites-history")
    assert finding is not None
    assert finding.turns == (4,)


def test_a_hoist_keeps_the_depth_within_the_first_message() -> None:
    loaded = load_model(None)
    run = Replay(
        open_transcript(transcript("claude-code")), loaded, [parse_policy("omlx"), parse_policy("as-is")]
    )
    for _ in run.turns():
        pass
    finding = found(run.report(), "depth-within-leading-block")
    assert finding is not None
    assert finding.policy == "omlx"
    assert len(finding.turns) > 25
    wasted = run.report().policies[0].totals.avoidable
    assert finding.tokens == wasted


def test_an_in_place_template_has_no_such_depth() -> None:
    loaded = load_model(None, template=str(template("in-place")))
    run = Replay(open_transcript(transcript("claude-code")), loaded, [parse_policy("as-is")])
    for _ in run.turns():
        pass
    assert found(run.report(), "depth-within-leading-block") is None
