"""Replaying a session of 34,000 tokens with a bundled model, beside cold prefills of the same prompts.

    python tests/bench/long_replay.py [MODEL]

The whole replay is measured: reading, rendering, encoding, looking up, restoring, prefilling, storing and the
search for causes. Of the cold prefills every tenth prompt is measured, the last one among them, and the
seconds are scaled by the tokens of all.
"""

import gc
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import long_session

MODELS = ("bundled:hybrid", "bundled:sliding-window")
CAPACITY = 32_000_000
SAMPLE_EVERY = 10


def run(name: str, requests: int = long_session.REQUESTS) -> dict[str, Any]:
    """Replay the session under `as-is` with one model.

    Args:
        name: the model.
        requests: length of the session.

    Returns:
        Measured seconds of both ways, and the peaks of MLX's memory in bytes: of the replay, and of a cold
        prefill of the last prompt alone, both with the weights.
    """
    from tplaudit.fixtures import template
    from tplaudit.probes.caches.base import Match
    from tplaudit.probes.caches.registry import server_cache
    from tplaudit.probes.engine.mlx_engine import load_engine
    from tplaudit.probes.models.model import load_model
    from tplaudit.probes.policies.registry import parse_policy
    from tplaudit.probes.replay.replay import Replay
    from tplaudit.probes.transcripts.reader import open_transcript

    model, policy = load_model(name, template=str(template("in-place"))), parse_policy("as-is")
    engine = load_engine(model)
    with tempfile.TemporaryDirectory() as folder:
        transcript = open_transcript(long_session.write(Path(folder) / "session.jsonl", requests))
        prompts = [model.tokenizer.encode(model.template.render_request(each)) for each in transcript]
        engine.prefill(prompts[0])  # warms up
        wanted = server_cache(policy, model_kind=engine.model_kind).spans
        alone = engine.prefill(prompts[-1], spans=wanted(prompts[-1], Match(0))).peak_bytes
        replay = Replay(transcript, model, [policy], engine=engine, capacity_bytes=CAPACITY)
        peak = 0
        prefill = engine.prefill

        def watched(*arguments: Any, **options: Any) -> Any:
            nonlocal peak
            done = prefill(*arguments, **options)
            peak = max(peak, done.peak_bytes)
            return done

        engine.prefill = watched
        started = time.perf_counter()
        for _ in replay.turns():
            pass
        seconds = time.perf_counter() - started
        engine.prefill = prefill
    report = replay.report()
    totals = report.policies[0].totals
    del replay
    gc.collect()  # what its cache holds is not the next model's
    assert [turn.prompt_tokens for turn in report.policies[0].turns] == [len(prompt) for prompt in prompts]
    sample = prompts[::-SAMPLE_EVERY]
    cold = sum(engine.prefill(prompt, spans=wanted(prompt, Match(0))).seconds for prompt in sample)
    return {
        "model": name,
        "requests": len(prompts),
        "last_prompt_tokens": len(prompts[-1]),
        "prompt_tokens": totals.prompt_tokens,
        "prefilled_tokens": totals.reprefill,
        "seconds": seconds,
        "prefill_seconds": totals.seconds,
        "cold_seconds": cold * totals.prompt_tokens / sum(map(len, sample)),
        "capacity_bytes": CAPACITY,
        "peak_bytes": peak,
        "last_alone_bytes": alone,
        "blas": engine.blas,
    }


if __name__ == "__main__":
    for name in sys.argv[1:] or MODELS:
        print(json.dumps(run(name), indent=2))
