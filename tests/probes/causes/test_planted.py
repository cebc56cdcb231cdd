"""Faults planted at random places of random conversations: the report names message, cause and tokens.

Every conversation is replayed as two requests, the second of which goes on behind the first. Without a fault
the first prompt is a prefix of the second. What a remedy wins is counted again here, from whole texts.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tplaudit.probes.conversation import Message, Request, Transcript
from tplaudit.probes.models.model import ReplayModel, load_model
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.replay.replay_report import PolicyReport, TurnReport
from tplaudit.probes.templates.template import ChatTemplate

Messages = list[dict[str, Any]]

HEAD = """\
{%- if style is defined %}{{ 'style ' + style + '\\n' }}{% endif -%}
{%- if tools %}{{ '<tools>' + (tools | tojson) + '</tools>\\n' }}{% endif -%}
"""
TAIL = "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}"
REASONING = "{%- if m.reasoning_content %}{{ '<think>' + m.reasoning_content + '</think>' }}{% endif -%}"


def turns(
    reasoning: str = REASONING, content: str = "{{ m.content }}", after: str = "{{ '<|im_end|>\\n' }}"
) -> str:
    return (
        "{%- for m in messages -%}{{ '<|im_start|>' + m.role + '\\n' }}"
        + reasoning
        + content
        + "{%- for c in m.tool_calls or [] %}{{ '<call>' + c.function.name + ' ' }}"
        + "{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}"
        + "{{ '</call>' }}{% endfor -%}"
        + after
        + "{%- endfor -%}"
    )


STEADY = HEAD + turns() + TAIL
LAST_USER = (
    "{%- set ns = namespace(last=-1) -%}"
    "{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor -%}"
)
STRIPS = LAST_USER + HEAD + turns(REASONING.replace("if m.r", "if loop.index0 > ns.last and m.r")) + TAIL
STRIPS_UNLESS_TOLD = (
    LAST_USER
    + HEAD
    + turns(REASONING.replace("if m.r", "if (loop.index0 > ns.last or preserve_thinking is true) and m.r"))
    + TAIL
)
COLLECTS = (
    HEAD
    + "{%- for m in messages if m.role == 'system' %}"
    + "{{ '<|im_start|>system\\n' + m.content + '<|im_end|>\\n' }}{% endfor -%}"
    + turns().replace("for m in messages", "for m in messages if m.role != 'system'")
    + TAIL
)
MARKS_LAST = HEAD + turns(after="{{ '<end>\\n' if loop.last else '<|im_end|>\\n' }}") + TAIL
OPENS_THINKING = STEADY.replace("assistant\\n' }}{% endif -%}", "assistant\\n<think>\\n' }}{% endif -%}")
CLOCK = "{{ 'It is ' + strftime_now('%H:%M') + '.\\n' }}" + STEADY

WORDS = "harbour tide ferry gale rope anchor chart buoy deck keel mast crew lamp fog wave".split()
TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "description": f"Tells the {name}.", "parameters": {"type": "object"}},
    }
    for name in ("tide", "ferry")
]

texts = st.lists(st.sampled_from(WORDS), min_size=3, max_size=9).map(" ".join)


@st.composite
def rounds(draw: st.DrawFn, number: int) -> Messages:
    """A user turn, some tool rounds with reasoning, and an answer."""
    messages: Messages = [{"role": "user", "content": f"{number}: {draw(texts)}"}]
    for step in range(draw(st.integers(1, 2))):
        call = {"name": "tide", "arguments": {"port": draw(texts), "day": number, "hour": step}}
        messages += [
            {
                "role": "assistant",
                "content": "",
                "reasoning_content": draw(texts),
                "tool_calls": [{"id": f"c{number}{step}", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": f"c{number}{step}", "content": draw(texts)},
        ]
    return [*messages, {"role": "assistant", "content": draw(texts), "reasoning_content": draw(texts)}]


@st.composite
def conversations(draw: st.DrawFn, shortest: int = 2) -> tuple[Messages, Messages]:
    """The messages of a first request and of a second one that goes on behind it."""
    stamp = draw(st.integers(10_000, 99_999))
    messages: Messages = [{"role": "system", "content": f"You pilot ships. cch={stamp}; {draw(texts)}"}]
    for number in range(draw(st.integers(1, 3))):
        messages += draw(rounds(number))
    ends = [end for end in range(shortest, len(messages)) if messages[end - 1]["role"] in ("user", "tool")]
    end = draw(st.sampled_from(ends))
    return messages[:end], [*messages, {"role": "user", "content": draw(texts)}]


def model(template: str) -> ReplayModel:
    """The bundled model with another template."""
    return replace(load_model(None), template=ChatTemplate({"default": template}, source="test"))


MODELS: dict[str, ReplayModel] = {}


def replayed(
    template: str, first: Any, second: Any, policy: str = "as-is", block_size: int = 1
) -> PolicyReport:
    """Replay two requests, each a list of messages or a Request."""
    requests = [each if isinstance(each, Request) else request(each) for each in (first, second)]
    run = Replay(
        Transcript("test", "openai-chat", lambda: iter(requests)),
        MODELS.setdefault(template, model(template)),
        [parse_policy(policy)],
        block_size=block_size,
    )
    for _ in run.turns():
        pass
    return run.report().policies[0]


def request(messages: Messages, **more: Any) -> Request:
    return Request(tuple(Message(each, index) for index, each in enumerate(messages)), **more)


def shared(template: str, first: Messages, second: Messages, **more: Any) -> int:
    """Count the tokens that the prompts of two message lists share, from whole texts."""
    loaded = MODELS.setdefault(template, model(template))
    ids = [list(loaded.tokenizer.encode(loaded.template.render(each, **more))) for each in (first, second)]
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*ids, strict=False)))


def check(turn: TurnReport, cause: str, index: int | None, won: int) -> None:
    parted = turn.divergence
    assert parted is not None
    assert (parted.cause, parted.confirmed) == (cause, True), parted.evidence
    assert (parted.message.index if parted.message else None) == index
    assert parted.remedy is not None
    assert parted.remedy.tokens == won
    assert [link.cause for link in parted.chain] == [cause]
    since = turn.since_previous
    assert since is not None
    assert (since.cause, since.confirmed) == (cause, True)


Plant = Callable[[Messages, Messages, int], tuple[Messages, int]]


def places(messages: Messages, fits: Callable[[dict[str, Any]], Any]) -> list[int]:
    return [index for index, message in enumerate(messages) if fits(message)]


def planted(second: Messages, index: int, **changes: Any) -> Messages:
    changed = copy.deepcopy(second)
    changed[index] = {key: value for key, value in {**changed[index], **changes}.items() if value is not None}
    return changed


def call_with(message: dict[str, Any], arguments: Any) -> list[dict[str, Any]]:
    call = copy.deepcopy(message["tool_calls"])
    call[0]["function"]["arguments"] = arguments
    return call


def has_call(message: dict[str, Any]) -> bool:
    return bool(message.get("tool_calls"))


IN_ONE_MESSAGE: dict[
    str, tuple[str, Callable[[dict[str, Any]], Any], Callable[[dict[str, Any]], dict[str, Any]]]
] = {
    "rewritten": (
        "history-rewritten",
        lambda m: m["role"] in ("user", "tool"),
        lambda m: {"content": "[cleared]"},
    ),
    "reasoning": (
        "client-reasoning-dropped",
        lambda m: m.get("reasoning_content"),
        lambda m: {"reasoning_content": None},
    ),
    "parts": (
        "content-form-flip",
        lambda m: m["role"] in ("user", "tool"),
        lambda m: {"content": [{"type": "text", "text": m["content"]}]},
    ),
    "stamp": (
        "volatile-text",
        lambda m: m["role"] == "system",
        lambda m: {"content": m["content"].replace("cch=", "cch=1")},
    ),
    "order": (
        "tool-arguments-reserialised",
        has_call,
        lambda m: {
            "tool_calls": call_with(m, dict(reversed(m["tool_calls"][0]["function"]["arguments"].items())))
        },
    ),
    "spacing": (
        "tool-arguments-reserialised",
        has_call,
        lambda m: {
            "tool_calls": call_with(
                m, json.dumps(m["tool_calls"][0]["function"]["arguments"], separators=(",", ":"))
            )
        },
    ),
}


@pytest.mark.parametrize("fault", IN_ONE_MESSAGE)
@settings(max_examples=25, deadline=None)
@given(conversation=conversations(shortest=4), data=st.data())
def test_one_message_is_sent_otherwise(
    fault: str, conversation: tuple[Messages, Messages], data: st.DataObject
) -> None:
    first, second = conversation
    cause, fits, change = IN_ONE_MESSAGE[fault]
    index = data.draw(st.sampled_from(places(first, fits)))
    faulty = planted(second, index, **change(second[index]))
    won = shared(STEADY, first, second) - shared(STEADY, first, faulty)
    check(replayed(STEADY, first, faulty).turns[1], cause, index, won)


@settings(max_examples=25, deadline=None)
@given(conversation=conversations(), data=st.data())
def test_a_message_is_removed(conversation: tuple[Messages, Messages], data: st.DataObject) -> None:
    first, second = conversation
    index = data.draw(st.integers(1, len(first) - 1))
    assume(second.count(first[index]) == 1)  # one of two equal messages may as well have been moved
    faulty = second[:index] + second[index + 1 :]
    won = shared(STEADY, first, second) - shared(STEADY, first, faulty)
    assume(won)
    turn = replayed(STEADY, first, faulty).turns[1]
    check(turn, "history-rewritten", index, won)
    assert turn.divergence is not None
    assert "no template or server setting helps" in turn.divergence.evidence


@settings(max_examples=25, deadline=None)
@given(conversation=conversations(), text=texts, data=st.data())
def test_a_message_is_inserted(
    conversation: tuple[Messages, Messages], text: str, data: st.DataObject
) -> None:
    first, second = conversation
    index = data.draw(st.integers(1, len(first) - 1))
    faulty = [*second[:index], {"role": "user", "content": f"Also: {text}"}, *second[index:]]
    won = shared(STEADY, first, second) - shared(STEADY, first, faulty)
    check(replayed(STEADY, first, faulty).turns[1], "history-rewritten", index, won)


@settings(max_examples=25, deadline=None)
@given(conversation=conversations(), data=st.data())
def test_a_reminder_is_moved(conversation: tuple[Messages, Messages], data: st.DataObject) -> None:
    first, second = conversation
    reminder = {"role": "user", "content": "Zzz: mind the reef"}
    at = data.draw(st.integers(1, len(first) - 1))
    first = [*first[:at], reminder, *first[at:]]
    clean = [*second[:at], reminder, *second[at:]]
    faulty = [*second, reminder]
    won = shared(STEADY, first, clean) - shared(STEADY, first, faulty)
    turn = replayed(STEADY, first, faulty).turns[1]
    check(turn, "history-rewritten", at, won)
    assert turn.divergence is not None
    contents = [each["content"] for each in second]
    if all(contents.count(each["content"]) == 1 for each in first):  # else another reading is as good
        assert f"moved message {at} to position {len(faulty) - 1}" in (turn.divergence.evidence or "")


@pytest.mark.parametrize(
    "change",
    [
        lambda tools: [*tools, {"type": "function", "function": {"name": "fog", "parameters": {}}}],
        lambda tools: tools[:1],
        lambda tools: tools[::-1],
        lambda tools: [dict(reversed(tool.items())) for tool in tools],
    ],
    ids=["added", "removed", "reordered", "keys"],
)
@settings(max_examples=10, deadline=None)
@given(conversation=conversations())
def test_the_tool_list_differs(change: Any, conversation: tuple[Messages, Messages]) -> None:
    first, second = conversation
    run = replayed(STEADY, request(first, tools=tuple(TOOLS)), request(second, tools=tuple(change(TOOLS))))
    loaded = MODELS[STEADY]
    one, other = (
        list(loaded.tokenizer.encode(loaded.template.render(messages, tools=tools)))
        for messages, tools in ((first, TOOLS), (second, change(TOOLS)))
    )
    now = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    won = shared(STEADY, first, second, tools=TOOLS) - now
    check(run.turns[1], "tools-changed", None, won)
    assert run.turns[1].divergence is not None
    assert run.turns[1].divergence.region == "tools"


@settings(max_examples=15, deadline=None)
@given(conversation=conversations())
def test_a_kwarg_differs(conversation: tuple[Messages, Messages]) -> None:
    first, second = conversation
    run = replayed(
        STEADY, request(first, kwargs={"style": "brief"}), request(second, kwargs={"style": "verbose"})
    )
    loaded = MODELS[STEADY]
    now = len(loaded.tokenizer.encode("style "))
    won = shared(STEADY, first, second, kwargs={"style": "brief"}) - run.turns[1].divergence.tokens
    assert abs(run.turns[1].divergence.tokens - now) <= 1
    check(run.turns[1], "kwargs-changed", None, won)


@settings(max_examples=20, deadline=None)
@given(conversation=conversations(), text=texts)
def test_a_server_hoists(conversation: tuple[Messages, Messages], text: str) -> None:
    first, second = conversation
    at = len(first)
    later = [*second[:at], {"role": "system", "content": f"Reminder: {text}"}]
    hoisted = [{**later[0], "content": f"{later[0]['content']}\n\nReminder: {text}"}, *later[1:at]]
    won = shared(STEADY, first, later) - shared(STEADY, first, hoisted)
    turn = replayed(STEADY, first, later, "hoist").turns[1]
    check(turn, "system-hoisted", at, won)
    assert turn.divergence.remedy.kind == "policy"


@settings(max_examples=20, deadline=None)
@given(conversation=conversations(), text=texts)
def test_a_note_changes_its_neighbour(conversation: tuple[Messages, Messages], text: str) -> None:
    first, _ = conversation
    user = {"role": "user", "content": f"Now: {text}"}
    reminder = {"role": "system", "content": f"Reminder: {text}"}
    earlier = [*first, {"role": "assistant", "content": text}, user, reminder]
    later = [*earlier, {"role": "user", "content": "And then?"}]
    note = f"[System note]\nReminder: {text}\n[/System note]"
    written = [
        [*earlier[:-2], {**user, "content": f"{user['content']}\n\n{note}"}],
        [*earlier[:-1], {"role": "user", "content": f"{note}\n\nAnd then?"}],
    ]
    won = shared(STEADY, earlier, later) - shared(STEADY, *written)
    turn = replayed(STEADY, earlier, later, "note").turns[1]
    parted = turn.divergence
    assert parted is not None
    assert (parted.cause, parted.confirmed) == ("note-neighbour-flip", True)
    assert won in [each.tokens for each in parted.remedies]


@settings(max_examples=20, deadline=None)
@given(conversation=conversations(), text=texts)
def test_a_server_merges_turns(conversation: tuple[Messages, Messages], text: str) -> None:
    first, _ = conversation
    earlier = [*first, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": text}]
    later = [*earlier, {"role": "user", "content": "And then?"}]
    merged = [*earlier[:-1], {"role": "user", "content": f"{text}\n\nAnd then?"}]
    won = shared(STEADY, earlier, later) - shared(STEADY, earlier, merged)
    check(replayed(STEADY, earlier, later, "hoist+merge").turns[1], "role-merged", len(earlier), won)


@settings(max_examples=20, deadline=None)
@given(conversation=conversations(), text=texts)
def test_a_template_collects_system_turns(conversation: tuple[Messages, Messages], text: str) -> None:
    first, second = conversation
    at = len(first)
    later = [*second[:at], {"role": "system", "content": f"Reminder: {text}"}, *second[at:]]
    won = shared(COLLECTS, first, second) - shared(COLLECTS, first, later)
    check(replayed(COLLECTS, first, later).turns[1], "template-moved-system", at, won)


def at_a_user_turn(conversation: tuple[Messages, Messages]) -> tuple[Messages, Messages, int]:
    """Let the second request bring another user turn, and tell where the reasoning before it begins."""
    first, _ = conversation
    start = max(places(first, lambda m: m["role"] == "user"))
    first = first if first[-1]["role"] == "tool" else conversation[1][: start + 3]
    second = [*first, {"role": "assistant", "content": "Aye."}, {"role": "user", "content": "Go on."}]
    return (
        first,
        second,
        next(index for index in range(start, len(first)) if first[index].get("reasoning_content")),
    )


@settings(max_examples=20, deadline=None)
@given(conversation=conversations())
def test_a_template_strips_reasoning_unless_told(conversation: tuple[Messages, Messages]) -> None:
    first, second, index = at_a_user_turn(conversation)
    kept = shared(STRIPS_UNLESS_TOLD, first, second, kwargs={"preserve_thinking": True})
    won = kept - shared(STRIPS_UNLESS_TOLD, first, second)
    turn = replayed(STRIPS_UNLESS_TOLD, first, second).turns[1]
    check(turn, "thinking-stripped", index, won)
    assert turn.divergence.remedy.set == "preserve_thinking=true"
    assert turn.divergence.remedy.paste is not None


@settings(max_examples=20, deadline=None)
@given(conversation=conversations())
def test_a_template_strips_reasoning_whatever_it_is_told(conversation: tuple[Messages, Messages]) -> None:
    first, second, index = at_a_user_turn(conversation)
    won = shared(STRIPS, first, second[:-1]) - shared(STRIPS, first, second)
    turn = replayed(STRIPS, first, second).turns[1]
    check(turn, "thinking-stripped", index, won)
    assert turn.divergence.remedy.kind == "template"


@settings(max_examples=20, deadline=None)
@given(conversation=conversations())
def test_a_template_writes_the_last_message_otherwise(conversation: tuple[Messages, Messages]) -> None:
    first, second = conversation
    loaded = MODELS.setdefault(MARKS_LAST, model(MARKS_LAST))
    prompt = loaded.tokenizer.encode(loaded.template.render(first))
    going_on = shared(MARKS_LAST, second[: len(first) + 1], second)
    won = min(going_on, len(prompt)) - shared(MARKS_LAST, first, second)
    turn = replayed(MARKS_LAST, first, second).turns[1]
    parted = turn.divergence
    assert parted is not None
    assert (parted.cause, parted.confirmed) == ("position-dependent-markup", True)
    assert parted.was is not None
    assert parted.remedy is not None
    assert parted.remedy.tokens == won


@settings(max_examples=20, deadline=None)
@given(conversation=conversations())
def test_the_generation_prompt_is_not_in_history(conversation: tuple[Messages, Messages]) -> None:
    first, second = conversation
    second = planted(second, len(first), reasoning_content=None)
    loaded = MODELS.setdefault(OPENS_THINKING, model(OPENS_THINKING))
    won = len(loaded.tokenizer.encode(loaded.template.render(first))) - shared(OPENS_THINKING, first, second)
    turn = replayed(OPENS_THINKING, first, second).turns[1]
    check(turn, "generation-prompt-mismatch", len(first), won)
    assert turn.since_previous.body_preserved
    assert turn.since_previous.message is None


@settings(max_examples=10, deadline=None)
@given(conversation=conversations())
def test_the_template_prints_the_time(conversation: tuple[Messages, Messages]) -> None:
    first, second = conversation
    times = [datetime(2026, 11, 30, 9, 10), datetime(2026, 11, 30, 9, 42)]
    run = replayed(CLOCK, request(first, now=times[0]), request(second, now=times[1]))
    won = shared(CLOCK, first, second, now=times[0]) - run.turns[1].divergence.tokens
    check(run.turns[1], "template-clock", None, won)
    assert run.turns[1].divergence.line == 1


@settings(max_examples=30, deadline=None)
@given(conversation=conversations(shortest=4), data=st.data())
def test_two_faults_are_named_in_order(conversation: tuple[Messages, Messages], data: st.DataObject) -> None:
    first, second = conversation
    reordered = data.draw(st.sampled_from(places(first, has_call)))
    rewritten = data.draw(st.sampled_from(places(first[:reordered], lambda m: m["role"] in ("user", "tool"))))
    one = planted(second, rewritten, content="[cleared]")
    arguments = second[reordered]["tool_calls"][0]["function"]["arguments"]
    both = planted(one, reordered, tool_calls=call_with(second[reordered], dict(reversed(arguments.items()))))
    other = planted(second, reordered, tool_calls=both[reordered]["tool_calls"])
    chain = replayed(STEADY, first, both).turns[1].divergence.chain
    assert [link.cause for link in chain] == ["history-rewritten", "tool-arguments-reserialised"]
    assert [link.message.index for link in chain] == [rewritten, reordered]
    depths = [shared(STEADY, first, each) for each in (both, other, second)]
    assert [link.tokens for link in chain] == depths[:2]
    assert [link.remedy.tokens for link in chain] == [depths[1] - depths[0], depths[2] - depths[1]]


@settings(max_examples=20, deadline=None)
@given(conversation=conversations())
def test_a_volatile_line_behind_a_hoist(conversation: tuple[Messages, Messages]) -> None:
    first, second = conversation
    at = len(first)
    stamped = planted(second, 0, content=second[0]["content"].replace("cch=", "cch=1"))
    later = [*stamped[:at], {"role": "system", "content": "Reminder: reef"}]
    chain = replayed(COLLECTS, first, later).turns[1].divergence.chain
    assert [link.cause for link in chain] == ["volatile-text", "template-moved-system"]


@settings(max_examples=15, deadline=None)
@given(conversation=conversations())
def test_nothing_is_planted(conversation: tuple[Messages, Messages]) -> None:
    first, second = conversation
    second = planted(second, len(first), reasoning_content=None)
    run = replayed(STEADY, first, second)
    assert run.turns[1].divergence is None
    assert run.turns[1].since_previous.cause is None
    assert run.totals.causes == {}
