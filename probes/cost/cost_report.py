"""What a replay's report says of time and memory: costs, what was wasted, what predictions come from.

The field names are the JSON names; docs/json.md explains them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Timings:
    """Measured wall times of one turn, apart from the prefill itself, in seconds.

    Attributes:
        restore: putting the reused state back.
        store: copying out what is stored.
        output: running the stored reply in chunks, less than a server takes to generate it.
        peak_bytes: the most memory that MLX held meanwhile, weights and all caches included.
    """

    restore: float
    store: float
    output: float = 0.0
    peak_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Cost:
    """What the prefill took.

    Attributes:
        seconds: wall time of the prefill of the tokens that were not reused.
        kind: whether it was measured or predicted.
        error: of a prediction, in seconds: root mean square on measurements that the fit had not seen; None
            where it is not known.
        measured: what was measured beside it.
    """

    seconds: float
    kind: Literal["measured", "predicted"]
    error: float | None = None
    measured: Timings | None = None


@dataclass(frozen=True, slots=True)
class PerHour:
    """What an hour of the session costs, in seconds (predicted)."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Wasted:
    """The time that avoidable tokens cost.

    What a turn took beyond an append-only one: its seconds, times the part of it that the cost model gives to
    the difference between `reprefill` tokens behind `reused` and `unavoidable` ones behind the rest. So it is
    predicted, also where the seconds are measured.

    Attributes:
        seconds: over all turns.
        per_hour: the same for each hour of the session; None where the transcript does not tell its length.
    """

    seconds: float
    per_hour: PerHour | None = None


@dataclass(frozen=True, slots=True)
class Speed:
    """What the model did, over the turns that were measured.

    Attributes:
        turns: how many were.
        tokens_per_second: their re-prefilled tokens over the seconds of their prefills; None for none.
        peak_bytes: the most memory that MLX held at any time, weights and all caches included.
    """

    turns: int
    tokens_per_second: float | None
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class PredictionQuality:
    """How good predictions are, by measurements that were left out of the fit.

    Attributes:
        error: root mean square of the relative errors; None where too little was measured to tell.
        median_error: their median; None likewise.
        longest: the longest prompt that was measured, in tokens; longer ones are extrapolated.
        prefills: how many prefills of this replay were measured.
        correction: how many times as long as the calibration says they took, by which the rest is scaled;
            None where there is no calibration, or there are too few.
    """

    error: float | None
    median_error: float | None
    longest: int
    prefills: int = 0
    correction: float | None = None


@dataclass(frozen=True, slots=True)
class Prediction:
    """What predicted seconds come from.

    Attributes:
        kind: `rate` as given, `calibration`, or `turns`: those of this replay that were measured.
        source: what that is, in words.
        measured: how good it is; None where nothing was measured.
    """

    kind: Literal["rate", "calibration", "turns"]
    source: str
    measured: PredictionQuality | None = None
