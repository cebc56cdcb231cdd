"""What a client did otherwise, planted in random conversations."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from planted import (
    MODELS,
    STEADY,
    TOOLS,
    Messages,
    call_with,
    check,
    conversations,
    has_call,
    places,
    planted,
    replayed,
    request,
    shared,
    texts,
)
from tplaudit.probes.causes.client import volatile_stretch
from tplaudit.probes.conversation import Message, Request, Transcript
from tplaudit.probes.models.model import load_model
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.replay.replay_report import Divergence
from tplaudit.probes.templates.template import ChatTemplate

SYSTEM = "x-anthropic-billing-header: cc_version=2.1; cch={};\nYou pilot ships in all weathers and at night."
STYLED = (
    "{{ 'effort ' + reasoning_effort + '\\n' }}"
    "{%- for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor -%}"
    "{%- if add_generation_prompt %}{{ 'assistant: ' }}{% endif -%}"
)

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
@given(conversation=conversations(shortest=4), data=st.data())
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
@given(conversation=conversations(shortest=4), text=texts, data=st.data())
def test_a_message_is_inserted(
    conversation: tuple[Messages, Messages], text: str, data: st.DataObject
) -> None:
    first, second = conversation
    index = data.draw(st.integers(1, len(first) - 1))
    faulty = [*second[:index], {"role": "user", "content": f"Also: {text}"}, *second[index:]]
    won = shared(STEADY, first, second) - shared(STEADY, first, faulty)
    check(replayed(STEADY, first, faulty).turns[1], "history-rewritten", index, won)


@settings(max_examples=25, deadline=None)
@given(conversation=conversations(shortest=4), data=st.data())
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


@pytest.mark.parametrize(
    ("old", "new", "role", "stretch"),
    [
        (
            "Today is Monday, be kind to users.",
            "Today is Friday, be kind to users.",
            "system",
            ("Monday", "Friday", 9),
        ),
        ("Today is Monday, be kind to users.", "Today is Friday, be kind to users.", "user", None),
        (
            "It is 09:10, be kind to all users.",
            "It is 09:42, be kind to all users.",
            "user",
            ("09:10", "09:42", 6),
        ),
        (
            "<system-reminder>On main, clean.",
            "<system-reminder>On main, dirty.",
            "user",
            ("clean.", "dirty.", 26),
        ),
        ("short 1", "2 others", "system", None),
        ("x" * 500 + " 1", "y" * 500 + " 1", "system", None),
    ],
)
def test_volatile_stretches(old: str, new: str, role: str, stretch: Any) -> None:
    assert volatile_stretch({"role": role, "content": old}, {"role": role, "content": new}) == stretch
