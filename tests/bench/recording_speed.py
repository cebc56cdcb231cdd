"""Replaying a long recording with sub-agents, beside rendering and encoding each request from scratch.

    python tests/bench/recording_speed.py [TOKENIZER_DIRECTORY]

The recording is that of long_recording.py; it is replayed under one policy, in token mode, without causes and
with them, which includes trying a remedy on the whole session, as the command does. The naive way renders
each request, as the policy prepared it, with transformers' own function and encodes the prompt with
`Tokenizer.encode`; it is measured on every fourth request and multiplied by four. Figures are CPU seconds of
all processes, without their start: each way runs in a process of its own. Without a directory the bundled
tokenizer is used, which encodes several times as fast as large ones.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import long_recording
from replay_speed import template

POLICY = "omlx"
SAMPLE_EVERY = 4
WAYS = ("replay", "replay-with-causes", "naive")


def run(directory: str | None = None) -> dict[str, Any]:
    """Measure all three ways.

    Args:
        directory: a directory with a tokenizer; None for the bundled one.

    Returns:
        CPU seconds, peak memory in bytes of both processes together, and the ratios.
    """
    with tempfile.TemporaryDirectory() as folder:
        recording = long_recording.write(Path(folder) / "recording.jsonl")
        jinja = Path(folder) / "template.jinja"
        jinja.write_text(template(), encoding="utf-8")
        done = {way: _in_process(way, recording, jinja, directory) for way in WAYS}
    fast, explained, naive = (done[way] for way in WAYS)
    assert fast["tokens"] == explained["tokens"]
    assert all(fast["tokens"][turn] == tokens for turn, tokens in naive["tokens"].items())
    return {
        "requests": len(fast["tokens"]),
        "prompt_tokens": sum(fast["tokens"].values()),
        "policy": POLICY,
        "avoidable": explained["avoidable"],
        "naive_seconds": naive["seconds"],
        "replay_seconds": fast["seconds"],
        "replay_seconds_with_causes": explained["seconds"],
        "share": fast["seconds"] / naive["seconds"],
        "share_with_causes": explained["seconds"] / naive["seconds"],
        "peak_bytes": max(fast["peak_bytes"], explained["peak_bytes"]),
    }


def _in_process(way: str, recording: Path, jinja: Path, directory: str | None) -> dict[str, Any]:
    command = [sys.executable, __file__, way, str(recording), str(jinja), directory or ""]
    environment = os.environ | {"TOKENIZERS_PARALLELISM": "false", "TRANSFORMERS_VERBOSITY": "error"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _replay(recording: Path, jinja: Path, directory: str | None, *, causes: bool) -> dict[str, Any]:
    from tplaudit.probes.models.model import load_model
    from tplaudit.probes.policies.registry import parse_policy
    from tplaudit.probes.replay.remedies import with_tried_remedies
    from tplaudit.probes.replay.replay import Replay
    from tplaudit.probes.templates.renderer import renderer
    from tplaudit.probes.transcripts.reader import open_transcript

    model = load_model(str(jinja), tokenizer=directory)
    hello = [{"role": "user", "content": "Hello."}]
    model.template.render(hello)
    renderer.close()
    start = resource.getrusage(resource.RUSAGE_CHILDREN)  # one start of the process that renders
    model.template.render([*hello, *hello])
    replay = Replay(open_transcript(recording), model, [parse_policy(POLICY)], causes=causes)
    began = time.process_time()
    for _ in replay.turns():
        pass
    report = with_tried_remedies(replay, replay.report())
    own = time.process_time() - began
    held = _peak_bytes("self") + _peak_bytes(renderer.pid)
    renderer.close()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    worker = children.ru_utime + children.ru_stime - 2 * (start.ru_utime + start.ru_stime)
    return {
        "seconds": own + worker,
        "tokens": {str(turn.turn): turn.prompt_tokens for turn in report.policies[0].turns},
        "avoidable": report.policies[0].totals.avoidable,
        "peak_bytes": held,
    }


def _peak_bytes(process: object) -> int:
    """Return the most memory that a process has had; on macOS what it has now."""
    if sys.platform == "darwin":
        number = os.getpid() if process == "self" else process
        shown = subprocess.run(["ps", "-o", "rss=", "-p", str(number)], capture_output=True, check=True)
        return 1024 * int(shown.stdout)
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def _naive(recording: Path, jinja: Path, directory: str | None) -> dict[str, Any]:
    from tokenizers import Tokenizer
    from tplaudit.fixtures import DEFAULT_MODEL
    from tplaudit.probes.models.model import load_model
    from tplaudit.probes.policies.registry import parse_policy
    from tplaudit.probes.transcripts.reader import open_transcript
    from transformers.utils.chat_template_utils import render_jinja_template

    path = Path(directory) if directory else DEFAULT_MODEL
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    source = jinja.read_text(encoding="utf-8")
    model, policy = load_model(str(jinja), tokenizer=directory), parse_policy(POLICY)
    seconds, tokens = 0.0, {}
    for turn, request in enumerate(open_transcript(recording), 1):
        if turn % SAMPLE_EVERY != SAMPLE_EVERY // 2:
            continue
        prepared = policy.prepare(request, model.template).request
        messages = [dict(message.data) for message in prepared.messages]
        tools = [dict(tool) for tool in prepared.tools or ()]
        began = time.process_time()
        (prompt,), _ = render_jinja_template(
            [messages],
            tools=tools or None,
            chat_template=source,
            add_generation_prompt=True,
            **prepared.kwargs,
        )
        ids = tokenizer.encode(prompt, add_special_tokens=False).ids
        seconds += time.process_time() - began
        tokens[str(turn)] = len(ids)
    return {"seconds": seconds * SAMPLE_EVERY, "tokens": tokens}


def _one_way(way: str, recording: str, jinja: str, directory: str) -> dict[str, Any]:
    given = Path(recording), Path(jinja), directory or None
    if way == "naive":
        return _naive(*given)
    return _replay(*given, causes=way != "replay")


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in WAYS:
        print(json.dumps(_one_way(*sys.argv[1:])))
    else:
        print(json.dumps(run(*sys.argv[1:2]), indent=2))
