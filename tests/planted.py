"""Faults planted at random places of random conversations: the report names message, cause and tokens.

Every conversation is replayed as two requests, the second of which goes on behind the first. Without a fault
the first prompt is a prefix of the second. What a remedy wins is counted again here, from whole texts.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile
from typing import Any

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
