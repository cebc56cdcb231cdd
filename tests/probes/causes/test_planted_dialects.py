"""Faults planted in every dialect, with and without stored replies: found, proved, mended to the token."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tplaudit.probes.conversation import Dialect, Message, Request, Transcript
from tplaudit.probes.models.model import load_model
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.replay.remedies import with_tried_remedies
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.replay.replay_report import PolicyReport
from tplaudit.probes.templates.template import ChatTemplate

Body = dict[str, Any]

TEMPLATE = (
    "{% if style %}style {{ style }}\n{% endif %}{% if tools %}{{ tools | tojson }}\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% set thought = m.reasoning_content or m.reasoning %}"
    "{% if thought %}<think>{{ thought }}</think>{% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<call {{ c.id }}>{{ c.function.arguments | tojson }}{% endfor %}"
    "{% if m.tool_call_id %}<result {{ m.tool_call_id }}>{% endif %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MODEL = replace(
    load_model(None),
    template=ChatTemplate({"default": TEMPLATE}, source="test", special_tokens={"eos_token": "<|im_end|>"}),
)


def conversation() -> Body:
    """A conversation in words of its own, which every dialect writes in its way."""
    turns: list[Body] = []
    for number in range(2):
        turns += [
            {
                "who": "user",
                "text": f"Which tide suits the barge on day {number}, and why not the other?",
            },
            {
                "who": "call",
                "id": f"call{number:06}",
                "arguments": {"port": "Havn", "day": number},
                "thought": f"The table of day {number} tells whether the barge floats before noon.",
            },
            {"who": "result", "id": f"call{number:06}", "text": f"High water of day {number}: 06:1{number}."},
            {"who": "answer", "text": f"The early one of day {number}, with half a metre to spare."},
        ]
    turns.append({"who": "user", "text": "Thanks, and the day after?"})
    return {"system": "You plan the week of a ferry. It is 09:10 now.", "turns": turns, "tools": ["tide"]}


def chat(body: Body) -> list[Body]:
    messages: list[Body] = [{"role": "system", "content": body["system"]}]
    for turn in body["turns"]:
        if turn["who"] == "call":
            function = {"name": "tide", "arguments": turn["arguments"]}
            message: Body = {"role": "assistant", "content": ""}
            if turn["thought"]:
                message["reasoning_content"] = turn["thought"]
            messages.append(
                {**message, "tool_calls": [{"id": turn["id"], "type": "function", "function": function}]}
            )
        elif turn["who"] == "result":
            messages.append({"role": "tool", "tool_call_id": turn["id"], "content": turn["text"]})
        else:
            role = "user" if turn["who"] == "user" else "assistant"
            messages.append({"role": role, "content": turn["text"]})
    return messages


def blocks(body: Body) -> list[Body]:
    messages: list[Body] = []
    for turn in body["turns"]:
        if turn["who"] == "call":
            thought = [{"type": "thinking", "thinking": turn["thought"], "signature": "s"}]
            call = {"type": "tool_use", "id": turn["id"], "name": "tide", "input": turn["arguments"]}
            messages.append({"role": "assistant", "content": [*(thought if turn["thought"] else []), call]})
        elif turn["who"] == "result":
            result = {"type": "tool_result", "tool_use_id": turn["id"], "content": turn["text"]}
            messages.append({"role": "user", "content": [result]})
        else:
            role = "user" if turn["who"] == "user" else "assistant"
            messages.append({"role": role, "content": [{"type": "text", "text": turn["text"]}]})
    return messages


def items(body: Body) -> list[Body]:
    found: list[Body] = []
    for turn in body["turns"]:
        if turn["who"] == "call":
            if turn["thought"]:
                content = [{"type": "reasoning_text", "text": turn["thought"]}]
                found.append({"type": "reasoning", "id": "rs", "summary": [], "content": content})
            arguments = json.dumps(turn["arguments"])
            found.append(
                {"type": "function_call", "call_id": turn["id"], "name": "tide", "arguments": arguments}
            )
        elif turn["who"] == "result":
            found.append({"type": "function_call_output", "call_id": turn["id"], "output": turn["text"]})
        else:
            user = turn["who"] == "user"
            part = {"type": "input_text" if user else "output_text", "text": turn["text"]}
            found.append({"type": "message", "role": "user" if user else "assistant", "content": [part]})
    return found


def tools_of(dialect: Dialect, names: list[str]) -> tuple[Body, ...]:
    schema: Body = {"type": "object", "properties": {}}
    if dialect == "anthropic-messages":
        return tuple({"name": name, "description": name, "input_schema": schema} for name in names)
    function = [{"name": name, "description": name, "parameters": schema} for name in names]
    if dialect == "openai-responses":
        return tuple({"type": "function", **each} for each in function)
    return tuple({"type": "function", "function": each} for each in function)


WRITERS: dict[Dialect, Callable[[Body], list[Body]]] = {
    "openai-chat": chat,
    "anthropic-messages": blocks,
    "openai-responses": items,
}


def request(dialect: Dialect, body: Body, upto: int) -> Request:
    """Write a conversation up to a turn of it; the reply is what follows, where that is one message."""
    before = WRITERS[dialect]({**body, "turns": body["turns"][:upto]})
    after = WRITERS[dialect]({**body, "turns": body["turns"][: upto + 1]})[len(before) :]
    return Request(
        tuple(Message(each, index) for index, each in enumerate(before)),
        tools=tools_of(dialect, body["tools"]),
        kwargs=body.get("kwargs", {}),
        dialect=dialect,
        system=None if dialect == "openai-chat" else body["system"],
        reply=after[0] if len(after) == 1 else None,
    )


def clock(body: Body) -> None:
    body["system"] = body["system"].replace("09:10", "09:42")


def cleared(body: Body) -> None:
    body["turns"][2]["text"] = "[cleared]"


def more_tools(body: Body) -> None:
    body["tools"].append("ferry")


def other_ids(body: Body) -> None:
    for turn in body["turns"][:5]:
        if "id" in turn:
            turn["id"] = turn["id"].replace("call", "toolu")


def other_order(body: Body) -> None:
    arguments = body["turns"][1]["arguments"]
    body["turns"][1]["arguments"] = dict(reversed(arguments.items()))


def no_thought(body: Body) -> None:
    body["turns"][1]["thought"] = ""


def style(body: Body) -> None:
    body["kwargs"] = {"style": "brief"}


FAULTS: dict[str, tuple[str, Callable[[Body], None]]] = {
    "clock": ("volatile-text", clock),
    "cleared": ("history-rewritten", cleared),
    "tools": ("tools-changed", more_tools),
    "ids": ("call-ids-changed", other_ids),
    "arguments": ("tool-arguments-reserialised", other_order),
    "reasoning": ("client-reasoning-dropped", no_thought),
    "kwargs": ("kwargs-changed", style),
}


def replayed(requests: list[Request], store: Any, policy: str = "vllm") -> PolicyReport:
    run = Replay(
        Transcript("test", requests[0].dialect, lambda: iter(requests)),
        MODEL,
        [parse_policy(policy)],
        store=store,
        block_size=1,
    )
    for _ in run.turns():
        pass
    return with_tried_remedies(run, run.report()).policies[0]


@pytest.mark.parametrize("store", ["prompt", "prompt+output"])
@pytest.mark.parametrize("dialect", WRITERS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault(fault: str, dialect: Dialect, store: Any) -> None:
    cause, plant = FAULTS[fault]
    clean, faulty = conversation(), copy.deepcopy(conversation())
    plant(faulty)
    run = replayed([request(dialect, clean, 7), request(dialect, faulty, 9)], store)
    turn = run.turns[1]
    assert turn.error is None
    parted = turn.divergence
    if (fault, dialect) == ("reasoning", "openai-responses"):
        assert parted is None  # the server leaves reasoning items out in any case
        return
    assert parted is not None
    assert (parted.cause, parted.confirmed) == (cause, True), parted.evidence
    assert turn.avoidable
    assert turn.explained == turn.avoidable
    assert parted.remedy is not None and turn.reprefill is not None
    assert 0 < parted.remedy.saves <= turn.reprefill
    if not parted.remedy.apply:
        assert fault == "kwargs"
        return
    best = next(tried for tried in run.tried if tried.remedy.apply == parted.remedy.apply)
    assert best.turns[1].reprefill == turn.reprefill - parted.remedy.saves
    if len(parted.chain) == 1:
        assert best.totals.avoidable == 0


@pytest.mark.parametrize("store", ["prompt", "prompt+output"])
@pytest.mark.parametrize("dialect", WRITERS)
def test_no_fault(dialect: Dialect, store: Any) -> None:
    clean = conversation()
    run = replayed([request(dialect, clean, upto) for upto in (1, 3, 5, 7, 9)], store)
    for turn in run.turns:
        assert turn.error is None
        assert turn.avoidable == turn.explained
        assert turn.divergence is None or turn.divergence.cause == "tokenizer-boundary"
    assert run.totals.avoidable <= 4
