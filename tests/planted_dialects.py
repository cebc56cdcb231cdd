"""A conversation that every dialect writes in its own way, and faults that are planted in it.

The second request of the faulty conversation goes on behind the first. Every fault states its cause, the
template and the server under which it shows, and the template that mends it where no setting does.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from tplaudit.probes.caches.stored_reply import Store
from tplaudit.probes.conversation import Dialect, Message, Request, Transcript
from tplaudit.probes.models.model import ReplayModel, load_model
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.templates.template import ChatTemplate

Body = dict[str, Any]

_THOUGHT = (
    "{% set thought = m.reasoning_content or m.reasoning %}"
    "{% if thought %}<think>{{ thought }}</think>{% endif %}"
)
_ASKS = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
STEADY = (
    "{% if style %}style {{ style }}\n{% endif %}{% if tools %}{{ tools | tojson }}\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n" + _THOUGHT + "{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<call {{ c.id }}>{{ c.function.arguments | tojson }}{% endfor %}"
    "{% if m.tool_call_id %}<result {{ m.tool_call_id }}>{% endif %}"
    "<|im_end|>\n{% endfor %}" + _ASKS
)


def _but(old: str, new: str, template: str = STEADY) -> str:
    """Return a template with one part of it written otherwise."""
    assert old in template, old
    return template.replace(old, new)


_LAST_USER = (
    "{% set ns = namespace(last=-1) %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
)
STRIPS = _LAST_USER + _but("{% if thought %}", "{% if thought and loop.index0 > ns.last %}")
STRIPS_UNLESS_TOLD = _LAST_USER + _but(
    "{% if thought %}", "{% if thought and (loop.index0 > ns.last or preserve_thinking is true) %}"
)
COLLECTS = _but(
    "{% for m in messages %}",
    "{% for m in messages if m.role == 'system' %}<|im_start|>system\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% for m in messages if m.role != 'system' %}",
)
MARKS_LAST = _but("<|im_end|>\n{% endfor %}", "{{ '<end>\n' if loop.last else '<|im_end|>\n' }}{% endfor %}")
OPENS_OTHERWISE = _but(_ASKS, _ASKS.replace("assistant\n", "assistant\n[aye]\n"))
OPENS_ALIKE = _but(
    "{{ m.role }}\n", "{{ m.role }}\n{% if m.role == 'assistant' %}[aye]\n{% endif %}", OPENS_OTHERWISE
)
INDENTS_REPLIES = _but("{{ m.content }}", "{{ '  ' if m.content and m.role == 'assistant' }}{{ m.content }}")
CLOCK = "It is {{ strftime_now('%H:%M') }}.\n" + STEADY

MODELS: dict[str, ReplayModel] = {}


def model(template: str) -> ReplayModel:
    """Return the bundled model with another template."""
    if template not in MODELS:
        made = ChatTemplate({"default": template}, source="test", special_tokens={"eos_token": "<|im_end|>"})
        MODELS[template] = replace(load_model(None), template=made)
    return MODELS[template]


@dataclass(frozen=True, slots=True)
class Topic:
    """What a conversation is about: its texts, in which `{}` is the day."""

    place: str
    system: str
    question: str
    thought: str
    result: str
    answer: str


FERRY = Topic(
    "Havn",
    "You plan the week of a ferry. It is 09:10 now.",
    "Which tide suits the barge on day {}, and why not the other?",
    "The table of day {} tells whether the barge floats before noon.",
    "High water of day {}: 06:11.",
    "The early one of day {}, with half a metre to spare.",
)
#: Conversations that stand beside it and never change.
OTHERS = (
    Topic(
        "Strand",
        "Answer for the harbour master, briefly and with a source.",
        "How many berths are free in week {} for yachts under ten metres?",
        "Berths are let by the week; the list of week {} says which are taken.",
        "Week {}: berths 4, 9 and 12.",
        "Three of them in week {}; the widest is number nine.",
    ),
    Topic(
        "Molo",
        "Help the crew of a dredger to keep its log.",
        "Please sum up watch {}: load, fuel, and what broke.",
        "Load and fuel of watch {} stand in the log, faults in the list behind it.",
        "Watch {}, 310 t, 2,100 l, winch jammed.",
        "Watch {} moved 310 tonnes on 2,100 litres, and its winch jammed.",
    ),
)


def conversation(topic: Topic = FERRY) -> Body:
    """Return a conversation of two rounds, each a question, a call, its result and an answer."""
    turns: list[Body] = []
    for day in range(2):
        call = f"call{topic.place}{day:02}"
        turns += [
            {"who": "user", "text": topic.question.format(day)},
            {
                "who": "call",
                "id": call,
                "arguments": {"port": topic.place, "day": day},
                "thought": topic.thought.format(day),
            },
            {"who": "result", "id": call, "text": topic.result.format(day)},
            {"who": "answer", "text": topic.answer.format(day)},
        ]
    turns.append({"who": "user", "text": "Thanks, and the day after?"})
    return {"system": topic.system, "turns": turns, "tools": ["tide"]}


def chat(body: Body) -> list[Body]:
    """Write a conversation as chat completions have it."""
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
            content = [{"type": "text", "text": turn["text"]}] if turn.get("parts") else turn["text"]
            messages.append({"role": _ROLES[turn["who"]], "content": content})
    return messages


def blocks(body: Body) -> list[Body]:
    """Write a conversation as Anthropic's messages have it, without the system text."""
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
            content = [{"type": "text", "text": turn["text"]}] if turn.get("parts") else turn["text"]
            messages.append({"role": _ROLES[turn["who"]], "content": content})
    return messages


def items(body: Body) -> list[Body]:
    """Write a conversation as OpenAI's responses have it, without the instructions."""
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
            role = _ROLES[turn["who"]]
            part = {"type": "output_text" if role == "assistant" else "input_text", "text": turn["text"]}
            content = [part] if turn.get("parts") else turn["text"]
            found.append({"type": "message", "role": role, "content": content})
    return found


_ROLES = {"user": "user", "answer": "assistant", "system": "system"}
WRITERS: dict[Dialect, Callable[[Body], list[Body]]] = {
    "openai-chat": chat,
    "anthropic-messages": blocks,
    "openai-responses": items,
}


def tools_of(dialect: Dialect, names: list[str]) -> tuple[Body, ...]:
    """Write tools of these names."""
    schema: Body = {"type": "object", "properties": {}}
    if dialect == "anthropic-messages":
        return tuple({"name": name, "description": name, "input_schema": schema} for name in names)
    function = [{"name": name, "description": name, "parameters": schema} for name in names]
    if dialect == "openai-responses":
        return tuple({"type": "function", **each} for each in function)
    return tuple({"type": "function", "function": each} for each in function)


def request(dialect: Dialect, body: Body, upto: int) -> Request:
    """Write a conversation up to a turn of it; the reply is what follows, where that is one message."""
    before = WRITERS[dialect]({**body, "turns": body["turns"][:upto]})
    after = WRITERS[dialect]({**body, "turns": body["turns"][: upto + 1]})[len(before) :]
    return Request(
        tuple(Message(each, index) for index, each in enumerate(before)),
        tools=tools_of(dialect, body["tools"]),
        kwargs=body.get("kwargs", {}),
        now=body.get("now"),
        dialect=dialect,
        system=None if dialect == "openai-chat" else body["system"],
        reply={**after[0], **body.get("generated", {})} if len(after) == 1 else None,
    )


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong between two requests.

    Attributes:
        cause: what it is called.
        later: makes the second request's conversation faulty.
        both: prepares the conversation of both requests.
        template: the template under which it shows.
        policy: the server under which it shows.
        mended: the template that mends it, where the remedy is a template.
        ends: the turns before which both requests end.
        block_size: tokens per block of the cache; None for the server's own.
        only: what has to be stored for it to show; None where that makes no difference.
    """

    cause: str
    later: Callable[[Body], None] = lambda body: None
    both: Callable[[Body], None] = lambda body: None
    template: str = STEADY
    policy: str = "vllm"
    mended: str | None = None
    ends: tuple[int, int] = (7, 9)
    block_size: int | None = 1
    only: Store | None = None

    def requests(self, dialect: Dialect) -> list[Request]:
        """Return both requests."""
        clean = conversation()
        self.both(clean)
        faulty = copy.deepcopy(clean)
        self.later(faulty)
        return [request(dialect, clean, self.ends[0]), request(dialect, faulty, self.ends[1])]


def _set(turn: int, **values: Any) -> Callable[[Body], None]:
    def plant(body: Body) -> None:
        body["turns"][turn].update(values)

    return plant


def _set_body(**values: Any) -> Callable[[Body], None]:
    return lambda body: body.update(values)


def _clock(body: Body) -> None:
    body["system"] = body["system"].replace("09:10", "09:42")


def _more_tools(body: Body) -> None:
    body["tools"].append("ferry")


def _other_ids(body: Body) -> None:
    for turn in body["turns"][:5]:
        if "id" in turn:
            turn["id"] = turn["id"].replace("call", "toolu")


def _other_order(body: Body) -> None:
    arguments = body["turns"][1]["arguments"]
    body["turns"][1]["arguments"] = dict(reversed(arguments.items()))


def _reminder(at: int) -> Callable[[Body], None]:
    return lambda body: body["turns"].insert(at, {"who": "system", "text": "Reminder: mind the reef."})


def _another_user(at: int) -> Callable[[Body], None]:
    return lambda body: body["turns"].insert(at, {"who": "user", "text": "And tell me the depth."})


def _generated(*pieces: str) -> Callable[[Body], None]:
    """Let the transcript have the ids that the model wrote, those of each of some texts by itself."""

    def plant(body: Body) -> None:
        encode = model(STEADY).tokenizer.encode
        body["generated"] = {"token_ids": [int(id) for piece in pieces for id in encode(piece)]}

    return plant


#: The last answer of the conversation.
_ANSWER = FERRY.answer.format(1)
FAULTS: Mapping[str, Fault] = {
    "clock": Fault("volatile-text", _clock),
    "cleared": Fault("history-rewritten", _set(2, text="[cleared]")),
    "tools": Fault("tools-changed", _more_tools),
    "ids": Fault("call-ids-changed", _other_ids),
    "arguments": Fault("tool-arguments-reserialised", _other_order),
    "reasoning": Fault("client-reasoning-dropped", _set(1, thought="")),
    "kwargs": Fault(
        "kwargs-changed", _set_body(kwargs={"style": "brief"}), _set_body(kwargs={"style": "chatty"})
    ),
    "parts": Fault("content-form-flip", _set(4, parts=True), policy="as-is"),
    "hoist": Fault("system-hoisted", _reminder(8), policy="hoist"),
    "note": Fault("note-neighbour-flip", _another_user(6), _reminder(5), policy="note", ends=(6, 8)),
    "merge": Fault("role-merged", _another_user(5), policy="hoist+merge", ends=(5, 6)),
    "template-clock": Fault(
        "template-clock",
        _set_body(now=datetime(2026, 11, 30, 9, 42)),
        _set_body(now=datetime(2026, 11, 30, 9, 10)),
        template=CLOCK,
        mended=STEADY,
    ),
    "strips": Fault("thinking-stripped", template=STRIPS, mended=STEADY),
    "strips-unless-told": Fault("thinking-stripped", template=STRIPS_UNLESS_TOLD),
    "collects": Fault(
        "template-moved-system", _reminder(8), template=COLLECTS, policy="as-is", mended=STEADY
    ),
    "marks-last": Fault(
        "position-dependent-markup", both=_generated(_ANSWER), template=MARKS_LAST, mended=STEADY
    ),
    "opening": Fault("generation-prompt-mismatch", template=OPENS_OTHERWISE, mended=OPENS_ALIKE),
    "reply": Fault(
        "reply-rewritten", both=_generated(f"  {_ANSWER}"), mended=INDENTS_REPLIES, only="prompt+output"
    ),
    "pieces": Fault("tokenizer-boundary", both=_generated(*_ANSWER), only="prompt+output"),
}


def replay(
    fault: Fault,
    requests: list[Request],
    store: Store,
    template: str | None = None,
    capacity: int | None = None,
) -> Replay:
    """Replay requests to the end under a fault's server, whose cache holds so many bytes."""
    run = Replay(
        Transcript("test", requests[0].dialect, lambda: iter(requests)),
        model(template or fault.template),
        [parse_policy(fault.policy)],
        store=store,
        block_size=fault.block_size,
        capacity_bytes=capacity,
    )
    for _ in run.turns():
        pass
    return run
