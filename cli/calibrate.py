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
    from ..probes.cost.calibration import CalibratedModel, Calibration
    from ..probes.engine.mlx_engine import MLXEngine
    from ..probes.models.model import FoundModel


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
            min=256,
            max=4_000_000,
            metavar="TOKENS",
            help="The longest prefix in the cache; longer is better, and slower.",
        ),
    ] = 16384,
    repeats: Annotated[
        int, typer.Option(min=1, max=1000, help="How often each length is measured at each depth.")
    ] = 3,
    max_minutes: options.MaxMinutes = None,
    kv_bits: options.KvBits = None,
    kv_group_size: options.KvGroupSize = 64,
    again: Annotated[
        bool,
        typer.Option("--again", help="Measure anew what was measured before; each of it stands until then."),
    ] = False,
    as_json: options.Json = False,
    output: options.Output = None,
) -> None:
    """Measure prefills of a few lengths at several depths, and fit what `replay` then predicts seconds from.

    The measurements are kept, one after the other, in the user's cache directory: after an interrupt the next
    call goes on, and replays of this model on this machine use them. No template or tokenizer is needed.
    """
    from ..probes.cost.calibration import (
        calibration_file,
        check_writable,
        identified,
        measured_versions,
        to_json,
    )
    from ..probes.cost.measure import tokens_to_run
    from ..probes.models.model import find_model
    from .formats.calibration_text import draw

    named = find_model(model)
    identity = identified(named.directory, named.source, kv_bits, kv_group_size)
    file = calibration_file(identity)
    _check_output(output, model, file)
    found = options.find_calibration(identity)
    code, left = 0, 0
    current = found is not None and dict(found.versions) == dict(measured_versions())
    if found and current and not again and not tokens_to_run(found, depth, repeats):
        say(f"note: all of this was measured on {found.measured}; --again measures it anew")
    else:
        check_writable(file)
        engine = _loaded(named, kv_bits, kv_group_size)
        start = _start(engine, identity, found)
        again = again and bool(start.points)
        found, left, code = _measured(engine, start, file, depth, repeats, again, max_minutes)
    if found.points:
        if as_json:
            write_json(to_json(found), output)
        else:
            write_rich(lambda console: draw(found, file, console), output)
    if left:
        rest = "whose earlier measurements stand" if again else "with which the same command goes on"
        say(f"tplaudit: {_kept(len(found.points))}; {left:,} tokens are left, {rest}")
    stop(code if found.points else code or 2)


def _check_output(output: Path | None, model: str | None, file: Path) -> None:
    """See that the result can be written, and not over the measurements. Raises UsageError where not."""
    from ..probes.errors import UsageError

    check_output(output, [model, str(file)])
    if output is not None and output.resolve() == file.resolve():
        raise UsageError("the measurements are kept there", where=str(output), fix="give another --output")


def _loaded(named: FoundModel, kv_bits: int | None, kv_group_size: int) -> MLXEngine:
    """Load the model. Raises InputError where it does not run, with advice that fits this command."""
    from ..probes.engine.mlx_engine import load_engine
    from ..probes.engine.mlx_model import COUNT_INSTEAD
    from ..probes.errors import InputError

    try:
        return load_engine(named, kv_bits=kv_bits, kv_group_size=kv_group_size)
    except InputError as error:
        fix = (error.fix or "").replace(COUNT_INSTEAD, "predict from replay's --prefill-rate instead")
        raise InputError(error.what, where=error.where, fix=fix) from error


def _start(engine: MLXEngine, identity: CalibratedModel, found: Calibration | None) -> Calibration:
    """Return what was measured before, as far as it holds for what runs now."""
    from ..probes.cost.calibration import same_conditions
    from ..probes.cost.measure import new_calibration

    new = new_calibration(engine, identity)
    if found is None or same_conditions(found, new):
        return found or new
    versions = ", ".join(f"{name} {number}" for name, number in found.versions.items())
    say(
        f"note: what was measured on {found.measured} ({found.weights}; {found.blas} BLAS; {versions}) "
        "is not what runs now, so it is replaced"
    )
    return new


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
    again: bool,
    max_minutes: float | None,
) -> tuple[Calibration, int, int]:
    """Measure, and keep each run at once. Return what is kept, the tokens left, and the exit code so far."""
    from rich.console import Console

    from ..probes.cost.calibration import keep_point
    from ..probes.cost.measure import calibrate, tokens_to_run

    started = time.monotonic()
    deadline = None if max_minutes is None else started + 60 * max_minutes
    left = total = tokens_to_run(None if again else calibration, depth, repeats)
    say(f"note: {total:,} tokens are going to be prefilled on {calibration.machine.described}")
    run = calibrate(engine, calibration, depth, repeats=repeats, again=again, deadline=deadline)
    code = 0
    try:
        with Console(stderr=True).status("measuring …", spinner="dots") as status:
            for step in run:
                calibration = keep_point(calibration, step.point, file, again=again)
                left = total - step.done
                spent = time.monotonic() - started
                rest = duration(spent / step.done * left)
                status.update(f"{step.done:,} of {total:,} tokens, about {rest} left")
    except KeyboardInterrupt:
        code = 130
    return calibration, left if again else tokens_to_run(calibration, depth, repeats), code
