"""What a prefill takes: a small model of seconds against new tokens and depth, fitted to measured prefills.

A prefill of `P` new tokens at depth `R` (docs/terms.md) is taken to need

    a + b P + c R + d P (R + P / 2)   seconds:

`a` for the call, `b` for the layers' work on each new token, `c` for what reads the whole cache once, and `d`
for each pair of a new token and one that it attends to. Sliding windows and running states see a bounded
past, so for them the last term is small and `b` carries the rest. No coefficient is negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

#: Groups that the measurements are split into for cross-validation, where there are more of them.
_FOLDS = 12
#: Fewer measurements than this say nothing about depth, nor about the error.
ENOUGH = 6


@dataclass(frozen=True, slots=True)
class Measured:
    """One measured prefill.

    Attributes:
        new_tokens: tokens that were computed.
        depth: tokens that stood in the cache before them.
        seconds: wall time.
    """

    new_tokens: int
    depth: int
    seconds: float


@dataclass(frozen=True, slots=True)
class CostModel:
    """Seconds of a prefill, predicted.

    Attributes:
        per_call: `a`, seconds.
        per_token: `b`, seconds per new token.
        per_depth: `c`, seconds per token of depth.
        per_pair: `d`, seconds per pair of a new token and one that it attends to.
        error: root mean square of the relative errors on measurements that were left out of the fit; None
            where nothing was measured or too little.
        median_error: their median; None likewise.
        longest: length of the longest prompt that was measured, in tokens; 0 for none. Beyond it, predictions
            are extrapolated.
    """

    per_call: float
    per_token: float
    per_depth: float
    per_pair: float
    error: float | None = None
    median_error: float | None = None
    longest: int = 0

    def seconds(self, new_tokens: int, depth: int) -> float:
        """Return the predicted wall time of a prefill.

        Args:
            new_tokens: tokens to compute; for none, nothing runs.
            depth: tokens in the cache before them.
        """
        if not new_tokens:
            return 0.0
        call, token, past, pair = _terms(new_tokens, depth)
        return self.per_call * call + self.per_token * token + self.per_depth * past + self.per_pair * pair

    def error_of(self, new_tokens: int, depth: int) -> float | None:
        """Return the error of a prediction in seconds; None where it is not known, as beyond `longest`.

        Args:
            new_tokens: as of `seconds`.
            depth: as of `seconds`.
        """
        if self.error is None or new_tokens + depth > self.longest:
            return None
        return self.error * self.seconds(new_tokens, depth)

    def scaled(self, factor: float, error: float | None = None) -> CostModel:
        """Return the model of a machine that takes so many times as long.

        Args:
            factor: how many times.
            error: of that model; None where it is not known.
        """
        return replace(
            self,
            per_call=factor * self.per_call,
            per_token=factor * self.per_token,
            per_depth=factor * self.per_depth,
            per_pair=factor * self.per_pair,
            error=error,
            median_error=None,
        )

    @classmethod
    def at_rate(cls, tokens_per_second: float) -> CostModel:
        """Return the crude model: so many tokens a second, whatever the depth."""
        return cls(0.0, 1 / tokens_per_second, 0.0, 0.0)


def fit(measured: Sequence[Measured]) -> CostModel | None:
    """Fit the model to measured prefills, so that the relative errors are least, and cross-validate it.

    Args:
        measured: the prefills. Of fewer than `ENOUGH` different ones only the rate is taken.

    Returns:
        The model, or None where no token was computed.
    """
    runs = [each for each in measured if each.new_tokens and each.seconds > 0]
    if not runs:
        return None
    longest = max(each.depth + each.new_tokens for each in runs)
    if len({(each.new_tokens, each.depth) for each in runs}) < ENOUGH:
        seconds_per_token = sum(each.seconds for each in runs) / sum(each.new_tokens for each in runs)
        return CostModel(0.0, seconds_per_token, 0.0, 0.0, longest=longest)
    import numpy as np

    rows = np.array([_terms(each.new_tokens, each.depth) for each in runs], np.float64)
    seconds = np.array([each.seconds for each in runs])
    rows /= seconds[:, None]
    folds = np.arange(len(runs)) % min(_FOLDS, len(runs))
    missed = np.concatenate(
        [rows[folds == fold] @ _least_squares(rows[folds != fold]) - 1 for fold in range(folds.max() + 1)]
    )
    call, token, past, pair = map(float, _least_squares(rows))
    return CostModel(
        call,
        token,
        past,
        pair,
        error=float(np.sqrt(np.mean(missed**2))),
        median_error=float(np.median(np.abs(missed))),
        longest=longest,
    )


def _terms(new_tokens: int, depth: int) -> tuple[float, float, float, float]:
    return 1.0, float(new_tokens), float(depth), new_tokens * (depth + new_tokens / 2)


def _least_squares(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the coefficients, none negative, with which rows of terms over seconds come closest to one.

    With four terms, the best such fit is the best unconstrained one over some of them: all 15 are tried.
    """
    import numpy as np

    scale = np.maximum(np.abs(rows).max(axis=0), 1e-300)
    best, least = np.zeros(rows.shape[1]), np.inf
    for count in range(1, rows.shape[1] + 1):
        for chosen in map(list, combinations(range(rows.shape[1]), count)):
            part = (rows / scale)[:, chosen]
            found = np.linalg.lstsq(part, np.ones(len(rows)), rcond=None)[0]
            missed = float(np.sum((part @ found - 1) ** 2))
            if found.min() >= 0 and missed < least:
                best, least = np.zeros(rows.shape[1]), missed
                best[chosen] = found
    return np.asarray(best / scale)
