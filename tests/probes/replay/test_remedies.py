"""Remedies applied to a whole session: what is promised is what replaying it gives."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from tplaudit.probes.conversation import Message, Request, Transcript
from tplaudit.probes.models.model import load_model
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.replay.changed_session import ChangedSession
from tplaudit.probes.replay.remedies import with_tried_remedies
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.replay.replay_report import PolicyReport
from tplaudit.probes.templates.template import ChatTemplate

Messages = list[dict[str, Any]]

TEMPLATE = (
    "{% if tools %}{{ tools | tojson }}\n{% endif %}"
    "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content and (preserve_thinking or loop.index0 > ns.last) %}"
    "<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content }}{% for c in m.tool_calls or [] %}<call {{ c.id }}>{{ c.function.arguments | tojson }}"
    "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THOUGHT = "The board in the harbour says nine, but the tide is late today."


def session(rounds: int = 4) -> list[Messages]:
    """Requests of a conversation with a tool call and an answer that reason, for each user turn."""
    messages: Messages = [{"role": "system", "content": "You plan the week of a small ferry."}]
    requests = []
    for number in range(rounds):
        messages = [
            *messages,
            {"role": "user", "content": f"Question {number} about the tide and the ferry?"},
        ]
        requests.append(messages)
        call = {"name": "tide", "arguments": {"day": number, "port": "Havn"}}
        messages = [
            *messages,
            {
                "role": "assistant",
                "content": "",
                "reasoning_content": f"{number}: {THOUGHT}",
                "tool_calls": [{"id": f"call_{number}", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": f"call_{number}", "content": f"High water at {number}:40."},
        ]
        requests.append(messages)
        messages = [*messages, {"role": "assistant", "content": f"At {number} o'clock, as the board says."}]
    return requests


def transcript(requests: list[Messages], tools: list[Any] | None = None) -> Transcript:
    made = [
        Request(
            tuple(Message(each, at) for at, each in enumerate(messages)),
            tools=tools[number] if tools else None,
        )
        for number, messages in enumerate(requests)
    ]
    return Transcript("test", "openai-chat", lambda: iter(made))


def tried(
    session: Transcript, most: int | None = None, policy: str = "as-is", **options: Any
) -> PolicyReport:
    model = replace(load_model(None), template=ChatTemplate({"default": TEMPLATE}, source="test"))
    run = Replay(session, model, [parse_policy(policy)], **{"block_size": 1, **options})
    for _ in run.turns():
        pass
    return with_tried_remedies(run, run.report(), most).policies[0]


def edited(requests: list[Messages], change: Any) -> list[Messages]:
    """Change each request's messages in place, given its number."""
    changed = [copy.deepcopy(messages) for messages in requests]
    for number, messages in enumerate(changed):
        change(number, messages)
    return changed


def clock(number: int, messages: Messages) -> None:
    messages[0]["content"] = f"It is 09:{10 + number}. {messages[0]['content']}"


def ids(number: int, messages: Messages) -> None:
    for message in messages:
        for call in message.get("tool_calls", ()):
            call["id"] += f"_{number}"
        if "tool_call_id" in message:
            message["tool_call_id"] += f"_{number}"


def clearing(number: int, messages: Messages) -> None:
    for message in messages[:-1]:
        if message["role"] == "tool":
            message["content"] = "[cleared]"


@pytest.mark.parametrize(
    ("change", "cause"),
    [(clock, "volatile-text"), (ids, "call-ids-changed"), (clearing, "history-rewritten")],
)
def test_what_the_client_does_undone_everywhere(change: Any, cause: str) -> None:
    clean = [
        [{**each, "reasoning_content": None} if each["role"] == "assistant" else each for each in messages]
        for messages in session()
    ]
    run = tried(transcript(edited(clean, change)))
    assert run.totals.causes[cause].turns >= 3
    assert run.totals.explained == run.totals.avoidable
    best = run.tried[0]
    assert best.remedy.apply == (f"client:{cause}",)
    assert best.totals.avoidable == 0
    assert best.remedy.saves == run.totals.reprefill - best.totals.reprefill > 0


def test_a_kwarg_for_the_whole_session() -> None:
    run = tried(transcript(session()))
    best = run.tried[0]
    assert (best.remedy.kind, best.remedy.set) == ("kwarg", "preserve_thinking=true")
    assert run.totals.avoidable > best.totals.avoidable == 0
    kept = [
        Request(
            tuple(Message(each, at) for at, each in enumerate(messages)), kwargs={"preserve_thinking": True}
        )
        for messages in session()
    ]
    real = tried(Transcript("test", "openai-chat", lambda: iter(kept)))
    assert real.totals.reprefill == best.totals.reprefill
    assert [turn.reprefill for turn in real.turns] == [turn.reprefill for turn in best.turns]


def test_two_remedies_together() -> None:
    run = tried(transcript(edited(session(), clock)))
    best = run.tried[0]
    assert {step.set.partition("=")[0].split(" ")[0] for step in best.steps} == {"keep", "preserve_thinking"}
    assert best.totals.avoidable == 0
    assert sum(step.saves for step in best.steps) == best.remedy.saves
    singles = [each for each in run.tried if not each.steps]
    assert all(each.totals.avoidable > 0 for each in singles)


def test_the_tool_list_goes_to_and_fro() -> None:
    tool = {"type": "function", "function": {"name": "tide", "parameters": {}}}
    more = {"type": "function", "function": {"name": "ferry", "parameters": {}}}
    requests = session()[::2]
    tools = [(tool,) if number % 2 else (tool, more) for number in range(len(requests))]
    run = tried(transcript(requests, tools))
    assert run.tried[0].remedy.apply == ("client:tools-changed",)
    assert run.tried[0].totals.avoidable < run.totals.avoidable


def test_none_is_tried_where_nobody_asks_or_nothing_is_wasted() -> None:
    assert tried(transcript(session()), most=0).tried == ()
    assert tried(transcript(session()), causes=False).tried == ()
    assert tried(transcript(session()[:2])).tried == ()


def test_a_session_without_a_change_is_the_session() -> None:
    own = transcript(session())
    assert ChangedSession(own).with_(["policy:hoist", "cache:larger"]) is own
    undone = ChangedSession(own).with_(["client:history-rewritten"])
    assert [[each.data for each in one.messages] for one in undone] == [
        [each.data for each in one.messages] for one in own
    ]
