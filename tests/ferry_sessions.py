"""Small sessions of a ferry's planner, replayed."""

from dataclasses import replace
from typing import Any

from tplaudit.probes.conversation import Message, Request, Transcript
from tplaudit.probes.models.model import ReplayModel, load_model
from tplaudit.probes.policies.registry import parse_policy
from tplaudit.probes.replay.replay import Replay
from tplaudit.probes.replay.replay_report import PolicyReport
from tplaudit.probes.templates.template import ChatTemplate

Messages = list[dict[str, Any]]


def model(template: str) -> ReplayModel:
    return replace(load_model(None), template=ChatTemplate({"default": template}, source="test"))


def replayed(
    loaded: ReplayModel, requests: list[Messages], policy: str = "as-is", **options: Any
) -> PolicyReport:
    def read() -> Any:
        for messages in requests:
            yield Request(tuple(Message(each, index) for index, each in enumerate(messages)))

    run = Replay(Transcript("test", "openai-chat", read), loaded, [parse_policy(policy)], **options)
    for _ in run.turns():
        pass
    return run.report().policies[0]


def call(number: int, thought: str) -> Messages:
    name = {"name": "tide_table", "arguments": {"port": "Havn", "day": number}}
    return [
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": thought,
            "tool_calls": [{"id": f"call_{number}", "type": "function", "function": name}],
        },
        {
            "role": "tool",
            "tool_call_id": f"call_{number}",
            "content": f"High water of day {number}: 06:1{number}",
        },
    ]
