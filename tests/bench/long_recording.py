"""A recording of hundreds of requests with a main agent and sub-agents, made from a real one.

    python tests/bench/long_recording.py [ROUNDS] > recording.jsonl

The recording of tests/data with parallel sub-agents is played once a round. The main conversation goes on
from round to round; each round's sub-agents begin anew, with another task. Tool results get more lines, put
together from lists of words with a fixed seed, so that prompts are as long as those of real work: with seven
rounds there are 364 requests, and their prompts have about 18 million tokens of Qwen3's tokenizer in all.
"""

from __future__ import annotations

import copy
import json
import lzma
import random
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import long_session

ROUNDS = 7
#: Time between two rounds; the recording takes less.
ROUND = timedelta(minutes=5)
#: Characters that each tool result of the main agent and of a sub-agent gets.
MAIN_CHARACTERS, SUB_AGENT_CHARACTERS = 1_200, 4_000
DATA = Path(__file__).resolve().parents[1] / "data" / "recordings"
NAME = "claude-code-parallel-subagents"


def requests(rounds: int = ROUNDS) -> Iterator[dict[str, Any]]:
    """Yield the recording's lines: a request of Anthropic's Messages API, and when it was sent."""
    lines = lzma.decompress((DATA / f"{NAME}.jsonl.xz").read_bytes()).splitlines()
    answers = json.loads((DATA / "conversations.json").read_text("utf-8"))[NAME]
    recorded = [
        (json.loads(line), answer["conversation"]) for line, answer in zip(lines, answers, strict=True)
    ]
    last = [line["request"]["messages"] for line, conversation in recorded if conversation == 1][-1]
    history: list[dict[str, Any]] = []  # the main conversation behind its opening, round after round
    for number in range(rounds):
        for line, conversation in recorded:
            main = conversation == 1
            request = copy.copy(line["request"])
            opening, rest = request["messages"][:2], request["messages"][2:]
            varied = _varied(rest, number, MAIN_CHARACTERS if main else SUB_AGENT_CHARACTERS)
            if main:
                request["messages"] = [*opening, *history, *varied]
            else:
                request["messages"] = [*_with_task(opening, number, conversation), *varied]
            sent = datetime.fromisoformat(line["now"]) + number * ROUND
            yield {"request": request, "now": sent.isoformat()}
        history += _varied(last[2:], number, MAIN_CHARACTERS)
        history += [
            {"role": "assistant", "content": [{"type": "text", "text": f"Part {number} is done."}]},
            {"role": "user", "content": f"Go on with part {number + 1}."},
        ]


def write(path: Path, rounds: int = ROUNDS) -> Path:
    """Write the recording, and return where."""
    with path.open("w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in requests(rounds))
    return path


def _varied(messages: list[dict[str, Any]], number: int, characters: int) -> list[dict[str, Any]]:
    """Return messages with the call ids and the longer tool results of a round."""
    varied = copy.deepcopy(messages)
    for index, message in enumerate(varied):
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "tool_use":
                block["id"] += f"_{number}"
            elif block["type"] == "tool_result":
                block["content"] = f"{_text(block)}\n{_lines(characters, number * 1000 + index)}"
                block["tool_use_id"] += f"_{number}"
    return varied


def _text(block: dict[str, Any]) -> str:
    content = block.get("content", "")
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def _lines(characters: int, seed: int) -> str:
    made = random.Random(seed)
    text = ""
    while len(text) < characters:
        text += long_session.function(made)
    return text


def _with_task(opening: list[dict[str, Any]], number: int, conversation: int) -> list[dict[str, Any]]:
    """Return the opening of a sub-agent with a task of its own."""
    task = {"type": "text", "text": f"Work on part {number}, file {conversation}."}
    return [{**opening[0], "content": [*opening[0]["content"], task]}, *opening[1:]]


if __name__ == "__main__":
    for wanted in requests(int(sys.argv[1]) if sys.argv[1:] else ROUNDS):
        print(json.dumps(wanted, ensure_ascii=False))
