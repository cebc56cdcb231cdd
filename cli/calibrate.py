"""`tplaudit calibrate`: measure what prefills of a model take, so that replays can predict their seconds."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .formats.durations import duration
from .output import check_output, say, stop, write_json, write_rich

if TYPE_CHECKING:
    from ..probes.calibration import Calibration
    from ..probes.mlx_engine import MLXEngine


def command(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]",
            callback=options.named,
            help="A model directory or a hub id such as owner/name. Without it the bundled tiny model.",
            show_default=False,
        ),
    ] = None,
    depth: Annotated[
        int,
        typer.Option(
            min=256, metavar="TOKENS", help="The longest prefix in the cache; longer is better, and slower."
        ),
    ] = 16384,
    repeats: Annotated[int, typer.Option(min=1, help="How often each length is measured at each depth.")] = 3,
    max_minutes: options.MaxMinutes = None,
    kv_bits: options.KvBits = None,
    kv_group_size: options.KvGroupSize = 64,
    again: Annotated[
        bool, typer.Option("--again", help="Measure anew what was measured before on this machine.")
    ] = False,
    as_json: options.Json = False,
    output: options.Output = None,
) -> None:
    """Measure prefills of a few lengths at several depths, and fit what `replay` then predicts seconds from.

    The measurements are kept, one after the other, in the user's cache directory: after an interrupt the next
    call goes on, and replays of this model on this machine use them.
    """
    from ..probes.calibrating import new_calibration, tokens_to_run
    from ..probes.calibration import calibration_file, to_json
    from ..probes.errors import UsageError
    from ..probes.models import load_model
    from .formats.calibration_text import draw

    check_output(output, [model])
    loaded = load_model(model)
    identity = loaded.identity(kv_bits)
    if identity is None:
        raise UsageError(
            "there is no model to measure, only a template", where=model, fix="name a model directory"
        )
    file = calibration_file(identity)
    found = None if again else options.find_calibration(identity)
    code = 0
    if found and not tokens_to_run(found, depth, repeats):
        say(f"note: all of this was measured on {found.measured}; --again measures it anew")
    else:
        engine = loaded.load_engine(kv_bits=kv_bits, kv_group_size=kv_group_size)
        found, code = _measured(
            engine, found or new_calibration(engine, identity), file, depth, repeats, max_minutes
        )
    if found.points:
        if as_json:
            write_json(to_json(found), output)
        else:
            write_rich(lambda console: draw(found, file, console), output)
    if missing := tokens_to_run(found, depth, repeats):
        kept = _kept(len(found.points))
        say(f"tplaudit: {kept}; {missing:,} tokens are left, with which the same command goes on")
    stop(code if found.points else code or 2)


def _kept(points: int) -> str:
    if points == 1:
        return "1 measurement is kept"
    return f"{points} measurements are kept" if points else "nothing was measured"


def _measured(
    engine: MLXEngine,
    calibration: Calibration,
    file: Path,
    depth: int,
    repeats: int,
    max_minutes: float | None,
) -> tuple[Calibration, int]:
    """Measure, keep each measurement at once, and return them with the exit code so far."""
    from rich.console import Console

    from ..probes.calibrating import calibrate, tokens_to_run
    from ..probes.calibration import write_calibration

    started = time.monotonic()
    deadline = None if max_minutes is None else started + 60 * max_minutes
    total = tokens_to_run(calibration, depth, repeats)
    say(f"note: {total:,} tokens are going to be prefilled on {calibration.machine.described}")
    try:
        with Console(stderr=True).status("measuring …", spinner="dots") as status:
            for step in calibrate(engine, calibration, depth, repeats=repeats, deadline=deadline):
                calibration = step.calibration
                write_calibration(calibration, file)
                spent = time.monotonic() - started
                left = duration(spent / step.done * (step.total - step.done))
                status.update(f"{step.done:,} of {step.total:,} tokens, about {left} left")
    except KeyboardInterrupt:
        return calibration, 130
    return calibration, 0
