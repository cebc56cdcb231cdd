"""`tplaudit calibrate`: measure what prefills of a model take, so that replays can predict their seconds."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from . import options
from .formats.durations import duration
from .options import PREFILL
from .output import check_output, progress, say, stop, write_json, write_rich

if TYPE_CHECKING:
    from ..probes.cost.calibration import CalibratedModel, Calibration
    from ..probes.engine.mlx_engine import MLXEngine
    from ..probes.models.model import FoundModel


@dataclass(frozen=True, slots=True)
class CalibrateOptions:
    """What `tplaudit calibrate` is given."""

    model: Annotated[
        str | None,
        options.argument(
            "[MODEL]", "A model directory or a hub id such as owner/name. Without it the bundled tiny model."
        ),
    ] = None
    depth: Annotated[
        int,
        options.option(
            PREFILL,
            "The longest prefix in the cache. A longer one predicts better and takes longer.",
            min=256,
            max=4_000_000,
            metavar="TOKENS",
        ),
    ] = 16384
    repeats: Annotated[
        int, options.option(PREFILL, "How often each length is measured at each depth.", min=1, max=1000)
    ] = 3
    max_minutes: options.MaxMinutes = None
    kv_bits: options.KvBits = None
    kv_group_size: options.KvGroupSize = 64
    again: Annotated[
        bool,
        options.option(
            PREFILL,
            "Repeat all measurements. Each earlier one is kept until its repetition is done.",
            "--again",
        ),
    ] = False
    as_json: options.Json = False
    output: options.Output = None


@dataclass(frozen=True, slots=True)
class CalibrateOutcome:
    """What is kept after measuring, the tokens that are left, and the exit code so far.

    `repeated`: whether measurements that were there before were made again.
    """

    calibration: Calibration
    left: int = 0
    code: int = 0
    repeated: bool = False


@options.taken_from(CalibrateOptions)
def command(given: CalibrateOptions) -> None:
    """Measure prefills of a few lengths at several depths, so that `replay` can predict seconds.

    The measurements are kept, one after the other, in the user's cache directory. After an interrupt the
    next call continues, and replays of this model on this machine use them. No template or tokenizer is
    needed.
    """
    from ..probes import extras
    from ..probes.cost.calibration import calibration_file, identified
    from ..probes.models.model import find_model

    extras.check_mlx("calibrate")
    found_model = find_model(given.model)
    identity = identified(found_model.directory, found_model.source, given.kv_bits, given.kv_group_size)
    file = calibration_file(identity)
    _check_output(given.output, given.model, file)
    found = options.find_calibration(identity)
    if found is not None and _is_complete(found, given):
        say(f"note: all of this was measured on {found.measured}; --again repeats it")
        measured = CalibrateOutcome(found)
    else:
        measured = _measure(given, found_model, identity, file, found)
    _write(given, measured.calibration, file)
    points = len(measured.calibration.points)
    if measured.left:
        rest = (
            "their earlier measurements are kept" if measured.repeated else "repeat the command to continue"
        )
        say(f"tplaudit: {_kept(points)}; {measured.left:,} tokens are left; {rest}")
    stop(measured.code if points else measured.code or 2)


def _is_complete(found: Calibration, given: CalibrateOptions) -> bool:
    """Return whether everything that is asked for was measured before, with what is installed now."""
    from ..probes.cost.calibration import measured_versions
    from ..probes.cost.measure import tokens_to_run

    current = dict(found.versions) == dict(measured_versions())
    return current and not given.again and not tokens_to_run(found, given.depth, given.repeats)


def _measure(
    given: CalibrateOptions,
    model: FoundModel,
    identity: CalibratedModel,
    file: Path,
    found: Calibration | None,
) -> CalibrateOutcome:
    """Measure what is missing, or everything again."""
    from ..probes.cost.calibration import check_writable

    check_writable(file)
    engine = _loaded(model, given.kv_bits, given.kv_group_size)
    start = _start(engine, identity, found)
    return _measured(engine, start, file, given, again=given.again and bool(start.points))


def _write(given: CalibrateOptions, calibration: Calibration, file: Path) -> None:
    from ..probes.cost.calibration import to_json

    if not calibration.points:
        return
    if given.as_json:
        write_json(to_json(calibration), given.output)
    else:
        from .formats.calibration_text import draw

        write_rich(lambda console: draw(calibration, file, console), given.output)


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
    engine: MLXEngine, calibration: Calibration, file: Path, given: CalibrateOptions, *, again: bool
) -> CalibrateOutcome:
    from ..probes.cost.calibration import keep_point
    from ..probes.cost.measure import calibrate, tokens_to_run

    depth, repeats = given.depth, given.repeats
    started = time.monotonic()
    deadline = None if given.max_minutes is None else started + 60 * given.max_minutes
    left = total = tokens_to_run(None if again else calibration, depth, repeats)
    say(f"note: {total:,} tokens are going to be prefilled on {calibration.machine.described}")
    run = calibrate(engine, calibration, depth, repeats=repeats, again=again, deadline=deadline)
    code = 0
    try:
        with progress("measuring …") as status:
            for step in run:
                calibration = keep_point(calibration, step.point, file, again=again)
                left = total - step.done
                spent = time.monotonic() - started
                rest = duration(spent / step.done * left)
                status.update(f"{step.done:,} of {total:,} tokens, about {rest} left")
    except KeyboardInterrupt:
        code = 130
    left = left if again else tokens_to_run(calibration, depth, repeats)
    return CalibrateOutcome(calibration, left, code, repeated=again)
