"""Measured prefills of a model on a machine, kept in a file, and the cost model that they give.

The file is in the user's cache directory (`TPLAUDIT_CACHE_DIR` names another one): one for each machine and
model, which is known by its config.json. It grows by one measurement at a time, so that a calibration which
was interrupted goes on where it was. `docs/calibrate.md` describes it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ... import __version__
from ..documents import plain
from ..engine.mlx_engine import KV_GROUP_SIZE
from ..errors import InputError
from ..files import read_json
from .cost_model import CostModel, Measured, fit
from .machine import Machine, this_machine

if TYPE_CHECKING:
    from ..models.model import ReplayModel

SCHEMA: Literal["tplaudit.calibration/1"] = "tplaudit.calibration/1"
_AGAIN = "run tplaudit calibrate again"


@dataclass(frozen=True, slots=True)
class CalibratedModel:
    """What was measured.

    Attributes:
        source: what the person named.
        architecture: `model_type` of its configuration.
        config: SHA-256 of its config.json without spaces and with sorted keys, hexadecimal.
        kv_bits: bits of quantised K and V; None for none.
        kv_group_size: numbers that share a scale, where they are quantised.
    """

    source: str
    architecture: str | None
    config: str
    kv_bits: int | None = None
    kv_group_size: int = KV_GROUP_SIZE


@dataclass(frozen=True, slots=True)
class Point:
    """One prefill, measured once or more.

    Attributes:
        new_tokens: tokens that were computed.
        depth: tokens that stood in the cache before them.
        seconds: wall time of each run.
    """

    new_tokens: int
    depth: int
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median of its runs, in seconds."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float | None:
        """How far apart its runs are: (longest - shortest) / median; None for a single run."""
        if len(self.seconds) < 2:
            return None
        return (max(self.seconds) - min(self.seconds)) / self.median


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The measurements of one model on one machine.

    Attributes:
        model: the model.
        machine: the machine.
        versions: of mlx and mlx-lm.
        weights: what the weights are, for people.
        blas: what multiplied matrices.
        measured: the day of the last measurement, ISO 8601.
        points: the measurements, in the order of their length.
    """

    schema: Literal["tplaudit.calibration/1"] = SCHEMA
    tplaudit: str = __version__
    model: CalibratedModel
    machine: Machine
    versions: Mapping[str, str]
    weights: str
    blas: str
    measured: str
    points: tuple[Point, ...] = ()

    @cached_property
    def cost(self) -> CostModel | None:
        """The fitted model; None before anything was measured."""
        return fit([Measured(each.new_tokens, each.depth, each.median) for each in self.points])

    @property
    def spread(self) -> float | None:
        """The median spread of the points that were measured more than once."""
        spreads = [each.spread for each in self.points if each.spread is not None]
        return statistics.median(spreads) if spreads else None

    def with_point(self, point: Point) -> Calibration:
        """Return the calibration with one more point, in place of an earlier one of its size."""
        others = [each for each in self.points if _place(each) != _place(point)]
        return replace(self, points=tuple(sorted([*others, point], key=_place)))

    def with_runs(self, point: Point) -> Calibration:
        """Return the calibration with more runs of a point, beside those that it has."""
        earlier = self.point(point.new_tokens, point.depth)
        return self.with_point(replace(point, seconds=earlier.seconds + point.seconds) if earlier else point)

    def point(self, new_tokens: int, depth: int) -> Point | None:
        """Return a measurement, if it was made."""
        return next((each for each in self.points if _place(each) == (depth, new_tokens)), None)


def _place(point: Point) -> tuple[int, int]:
    return point.depth, point.new_tokens


def identified(
    directory: Path, source: str = "", kv_bits: int | None = None, kv_group_size: int = KV_GROUP_SIZE
) -> CalibratedModel:
    """Return what a calibration knows a model by.

    Args:
        directory: the model's, with a config.json.
        source: what a person called it; the directory where that is empty.
        kv_bits: bits of quantised K and V; None for none.
        kv_group_size: numbers that share a scale; of no meaning where nothing is quantised.

    Raises:
        InputError: the config.json cannot be read.
    """
    config = read_json(directory / "config.json")
    named = config.get("model_type")
    architecture = named if isinstance(named, str) else None
    group = KV_GROUP_SIZE if kv_bits is None else kv_group_size
    return CalibratedModel(source or str(directory), architecture, config_digest(config), kv_bits, group)


def model_identity(
    model: ReplayModel, kv_bits: int | None = None, kv_group_size: int = KV_GROUP_SIZE
) -> CalibratedModel | None:
    """Return what a calibration knows a replay's model by; None for a bare template."""
    if model.kind == "template" or not (model.directory / "config.json").is_file():
        return None
    return identified(model.directory, model.source, kv_bits, kv_group_size)


def fits(calibration: Calibration, model: CalibratedModel) -> bool:
    """Tell whether a calibration is one of this model."""
    return replace(calibration.model, source=model.source, architecture=model.architecture) == model


def same_conditions(one: Calibration, other: Calibration) -> bool:
    """Tell whether the measurements of two calibrations may stand side by side: one model, one machinery."""
    return fits(one, other.model) and (dict(one.versions), one.weights, one.blas) == (
        dict(other.versions),
        other.weights,
        other.blas,
    )


def misfits(
    calibration: Calibration, model: CalibratedModel | None, blas: str | None = None
) -> tuple[str, ...]:
    """Say what is not as it was when a calibration was measured, in sentences without a full stop.

    Args:
        calibration: what seconds are to be predicted from.
        model: the model that they are predicted for; None for none of its own.
        blas: what multiplies its matrices; None where that is not known, as where no model runs.
    """
    notes = []
    if model and not fits(calibration, model):
        notes.append(
            f"the calibration is of another model, {calibration.model.source}, so that the error is not known"
        )
    if dict(calibration.versions) != dict(measured_versions()):
        versions = ", ".join(f"{name} {number}" for name, number in calibration.versions.items())
        notes.append(f"the calibration was measured with {versions}, not with what is installed here")
    if blas is not None and calibration.blas != blas:
        notes.append(f"the calibration was measured with {calibration.blas} BLAS, not with {blas} as here")
    return tuple(notes)


def config_digest(config: Mapping[str, Any]) -> str:
    """Return the SHA-256 by which a calibration knows a model: of its config.json, however it is laid out."""
    text = json.dumps(config, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def measured_versions() -> Mapping[str, str]:
    """Return the versions of what computes; of a package that is not installed, none."""
    found = {}
    for name in ("mlx", "mlx-lm"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def calibration_file(model: CalibratedModel, machine: Machine | None = None) -> Path:
    """Return where the calibration of a model on a machine, by default this one, is kept."""
    machine = machine or this_machine()
    quantised = model.kv_bits and [model.kv_bits, model.kv_group_size]
    key = json.dumps([model.config, quantised, machine.system, machine.processor, machine.cores])
    name = hashlib.sha256(key.encode("utf-8")).hexdigest()[:20]
    # Whoever wrote the config.json could name any path.
    architecture = re.sub(r"[^\w.-]", "_", model.architecture or "model", flags=re.ASCII)[:40]
    return _folder() / "calibrations" / f"{architecture}-{name}.json"


def _folder() -> Path:
    if named := os.environ.get("TPLAUDIT_CACHE_DIR"):
        return Path(named)
    from platformdirs import user_cache_path

    return user_cache_path("tplaudit", appauthor=False)


def find_calibration(model: CalibratedModel) -> Calibration | None:
    """Return the calibration of a model on this machine, or None where there is none.

    Raises:
        InputError: there is one, and it cannot be read.
    """
    file = calibration_file(model)
    return read_calibration(file) if file.is_file() else None


def read_calibration(file: Path) -> Calibration:
    """Read a calibration.

    Raises:
        InputError: the file is none.
    """
    import msgspec

    try:
        read = msgspec.json.decode(file.read_bytes(), type=Calibration)
    except OSError as error:
        what = (error.strerror or "cannot be read").lower()
        raise InputError(what, where=str(file), fix="give a file that tplaudit calibrate wrote") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"this is not a calibration ({error})", where=str(file), fix=_AGAIN) from None
    machine = read.machine
    if not 0 < machine.cores < 2**31 or not 0 <= (machine.memory_bytes or 0) < 2**63:
        raise InputError("there is no such machine", where=str(file), fix=_AGAIN)
    if not all(map(_possible, read.points)):
        raise InputError("a point has no time or no tokens", where=str(file), fix=_AGAIN)
    return read


def given_calibration(file: Path) -> Calibration:
    """Read a calibration that a person named. Raises InputError where it is none, or has no measurement."""
    read = read_calibration(file)
    if not read.points:
        raise InputError("nothing was measured in it", where=str(file), fix=_AGAIN)
    return read


def _possible(point: Point) -> bool:
    """Tell whether a point can have been measured; sums of what is beyond these bounds have no end."""
    sizes = 0 < point.new_tokens <= 10**9 and 0 <= point.depth <= 10**9
    return sizes and bool(point.seconds) and all(1e-9 <= seconds <= 1e9 for seconds in point.seconds)


def keep_point(calibration: Calibration, point: Point, file: Path, *, again: bool = False) -> Calibration:
    """Put what was just measured into a file at once, beside what another process has put there meanwhile.

    Args:
        calibration: what is known so far; written where the file has none that was measured likewise.
        point: the new runs of a point.
        file: where to keep them.
        again: the runs take the place of earlier ones instead of standing beside them.

    Returns:
        What the file has now.

    Raises:
        InputError: the file cannot be written.
    """
    from filelock import FileLock

    with _writing(file), FileLock(file.with_suffix(".lock")):
        with suppress(InputError):
            found = read_calibration(file)
            if same_conditions(found, calibration):
                calibration = replace(found, measured=calibration.measured)
        calibration = calibration.with_point(point) if again else calibration.with_runs(point)
        write_calibration(calibration, file)
    return calibration


def check_writable(file: Path) -> None:
    """See before anything is measured whether it can be kept. Raises InputError where it cannot."""
    with _writing(file):
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        tempfile.TemporaryFile(dir=file.parent).close()


def write_calibration(calibration: Calibration, file: Path) -> None:
    """Write a calibration as a whole or not at all.

    Raises:
        InputError: the file cannot be written.
    """
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    with _writing(file):
        try:
            part.write_text(json.dumps(to_json(calibration), indent=2) + "\n", encoding="utf-8")
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)


@contextmanager
def _writing(file: Path) -> Iterator[None]:
    """Make the folder of a file that is going to be written; what fails meanwhile is an InputError."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise InputError(
            (error.strerror or "cannot be written").lower(),
            where=str(file),
            fix="set TPLAUDIT_CACHE_DIR to a folder that can be written",
        ) from None


def to_json(calibration: Calibration) -> dict[str, Any]:
    """Return a calibration as plain JSON types, with what was fitted to it under `seconds`."""
    fitted = calibration.cost
    return {**plain(calibration), "seconds": fitted and plain(fitted)}
