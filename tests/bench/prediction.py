"""Predicting the seconds of a replay's turns from a calibration, beside running the model.

    python tests/bench/prediction.py [MODEL]

A model is calibrated; then a session is replayed under a policy that rewrites history and under one that does
not, twice with the model and once without. The session is no part of the calibration. Both runs say how far
two measurements of the same turn are apart: no prediction can be expected to be better than that.
"""

import json
import statistics
import sys
import time
from typing import Any

DEPTH = 8192
POLICIES = ("omlx", "note")


def run(model: str | None = None) -> dict[str, Any]:
    """Measure and predict.

    Args:
        model: as `--model` takes it; None for the bundled model.

    Returns:
        Medians over the turns of both policies: `error`, of the prediction against the mean of two
        measurements, and `spread`, of one measurement against the other; and measured seconds.
    """
    from tplaudit.probes.cost.calibration import model_identity
    from tplaudit.probes.cost.measure import calibrate, new_calibration
    from tplaudit.probes.cost.prefill_timer import PrefillTimer
    from tplaudit.probes.engine.mlx_engine import load_engine
    from tplaudit.probes.models.model import load_model

    loaded = load_model(model)
    engine = load_engine(loaded)
    identity = model_identity(loaded)
    assert identity is not None
    started = time.perf_counter()
    *_, last = calibrate(engine, new_calibration(engine, identity), DEPTH, repeats=3)
    calibrating = time.perf_counter() - started
    first, _ = replay(loaded, PrefillTimer(engine), engine)
    second, running = replay(loaded, PrefillTimer(engine), engine)
    predicted, counting = replay(loaded, PrefillTimer(calibration=last.calibration), None)
    errors, spreads = [], []
    for one, other, guess in zip(first, second, predicted, strict=True):
        errors.append(abs(guess / ((one + other) / 2) - 1))
        spreads.append(abs(one - other) / ((one + other) / 2))
    cost = last.calibration.cost
    assert cost is not None
    return {
        "model": f"{loaded.source}, {engine.model_kind}",
        "turns": len(errors),
        "error": statistics.median(errors),
        "spread": statistics.median(spreads),
        "total_error": sum(predicted) / ((sum(first) + sum(second)) / 2) - 1,
        "cross_validated": cost.median_error,
        "calibrating_seconds": calibrating,
        "running_seconds": running,
        "predicting_seconds": counting,
    }


def replay(loaded: Any, prefilling: Any, engine: Any) -> tuple[list[float], float]:
    """Replay the bundled coding session; return the seconds of each turn, and of the whole."""
    from tplaudit.fixtures import transcript
    from tplaudit.probes.policies.registry import parse_policy
    from tplaudit.probes.replay.replay import Replay
    from tplaudit.probes.transcripts.reader import open_transcript

    session = Replay(
        open_transcript(transcript("claude-code")),
        loaded,
        [parse_policy(name) for name in POLICIES],
        engine=engine,
        prefilling=prefilling,
        causes=False,
    )
    started = time.perf_counter()
    for _ in session.turns():
        pass
    took = time.perf_counter() - started
    turns = [turn for policy in session.report().policies for turn in policy.turns]
    return [turn.cost.seconds for turn in turns if turn.cost is not None], took


if __name__ == "__main__":
    print(json.dumps(run(*sys.argv[1:2]), indent=2))
