"""Seconds of prefill, predicted from what a replay counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..cost.calibration import CalibratedModel, Calibration, find_calibration, given_calibration, identified
from ..cost.prefill_timer import PrefillTimer

#: New tokens and those reused before them, of one prefill.
Prefill = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Predictor:
    """How long a model takes to prefill.

    Attributes:
        seconds: the seconds for a number of new tokens behind a number of reused ones.
        source: what that comes from, in words without a full stop.
        error: root mean square of the relative errors on left-out measurements; None where it is not known.
        longest: the longest prompt that was measured, in tokens; None where nothing was.
        notes: what does not fit between what was measured and what is predicted.
    """

    seconds: Callable[[int, int], float]
    source: str
    error: float | None = None
    longest: int | None = None
    notes: tuple[str, ...] = ()

    def total(self, prefills: Iterable[Prefill]) -> float:
        """Return the predicted seconds of several prefills."""
        return sum(self.seconds(tokens, depth) for tokens, depth in prefills)

    def explained(self, prefills: Iterable[Prefill]) -> Iterator[str]:
        """Say what seconds are predicted from and how good that is, in sentences without a full stop."""
        known = "" if self.error is None else f", with an error of {self.error:.0%} (root mean square)"
        yield f"seconds are predicted from {self.source}{known}"
        longest = self.longest
        if longest is not None:
            beyond = sum(tokens + depth > longest for tokens, depth in prefills)
            if beyond:
                what = f"seconds of {beyond} turns are extrapolated"
                yield f"{what}: nothing longer than {longest:,} tokens was measured"
        yield from self.notes


def predictor(
    rate: float | None, calibration: Calibration | None, model: CalibratedModel | None = None
) -> Predictor | None:
    """Return what predicts seconds: the rate, else the calibration; None where neither can.

    Args:
        rate: tokens per second, the crude case.
        calibration: measured prefills.
        model: what is replayed; None for none of its own.
    """
    prefilling = PrefillTimer(rate=rate, calibration=calibration, model=model)
    cost, prediction = prefilling.cost, prefilling.prediction()
    if cost is None or prediction is None:
        return None
    quality = prediction.measured
    return Predictor(
        cost.seconds,
        prediction.source,
        cost.error,
        None if quality is None else quality.longest,
        prefilling.notes,
    )


def calibrated(file: str | None, directory: Path | None) -> Predictor | None:
    """Return what predicts seconds from measured prefills, as `tplaudit replay` finds them.

    Args:
        file: a calibration; None for that of the model on this machine.
        directory: the model's, with a config.json; None where it is not at hand.

    Returns:
        None where there is no calibration, or nothing was measured.

    Raises:
        InputError: the calibration or the config.json cannot be read.
    """
    identity = identified(directory) if directory is not None else None
    if file is not None:
        found: Calibration | None = given_calibration(Path(file))
    else:
        found = find_calibration(identity) if identity else None
    return predictor(None, found, identity) if found else None
