"""What runs a turn's prefill, and what it takes: the engine, while there is one and its time lasts.

Where it does not run, the seconds are predicted if there is something to predict them from.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from .calibration import fits, misfits
from .cost_model import ENOUGH, CostModel, Measured, fit
from .cost_report import Cost, Prediction, PredictionQuality, Timings

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ..caches.base import Match, Payload
    from ..engine.mlx_engine import MLXEngine, Verification
    from ..engine.states import StateBlock
    from ..tokenization.token_range import TokenRange
    from ..tokenization.tokens import Ids
    from .calibration import CalibratedModel, Calibration


class PrefillTimer:
    """Runs or predicts the prefills of a replay.

    Args:
        engine: the model, or None to predict only.
        rate: tokens per second to predict from; None for none.
        calibration: what to predict from otherwise; where there is none either, the turns that were measured.
            Where some were, they correct it.
        model: what is replayed, by which a calibration is known; None for none of its own.
        max_seconds: the engine stops so long after its first prefill began; None for no limit.
    """

    def __init__(
        self,
        engine: MLXEngine | None = None,
        *,
        rate: float | None = None,
        calibration: Calibration | None = None,
        model: CalibratedModel | None = None,
        max_seconds: float | None = None,
    ) -> None:
        self._engine = engine
        self.rate = rate
        self._calibration = calibration
        self._max_seconds = max_seconds
        self._deadline: float | None = None
        self._misfits = (
            misfits(calibration, model, engine.blas if engine else None) if calibration and not rate else ()
        )
        self._given = CostModel.at_rate(rate) if rate else calibration.cost if calibration else None
        if self._given and calibration and model and not fits(calibration, model):
            self._given = self._given.scaled(1)  # its error is another model's
        self._fitted: CostModel | None = None
        self._fitted_to = 0
        self.measured: list[Measured] = []
        self.stopped = False

    @property
    def runs(self) -> bool:
        """Whether the engine computes the next prefill."""
        return self._engine is not None and not self.stopped

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader has to know about the seconds."""
        if not self.stopped or self._max_seconds is None:
            return self._misfits
        return (
            *self._misfits,
            f"the model stopped after {self._max_seconds / 60:g} minutes; the rest is counted, and its "
            "seconds are predicted",
        )

    @property
    def cost(self) -> CostModel | None:
        """What predicts: what was given, else a fit to the turns measured so far; None without either.

        A calibration is scaled to what was measured since, which knows the machine as it is now.
        """
        if self._given:
            factor = self._correction
            return self._given if factor is None else self._corrected(self._given, factor)
        if len(self.measured) > self._fitted_to:
            self._fitted, self._fitted_to = fit(self.measured), len(self.measured)
        return self._fitted

    @property
    def _correction(self) -> float | None:
        """How many times as long as the calibration says the measured prefills took; None for too few."""
        if self._given is None or len(self.measured) < ENOUGH:
            return None
        expected = sum(self._given.seconds(each.new_tokens, each.depth) for each in self.measured)
        return sum(each.seconds for each in self.measured) / expected if expected > 0 else None

    def _corrected(self, given: CostModel, factor: float) -> CostModel:
        """Scale a calibration to the measured prefills; the error is what it then misses them by."""
        missed = [
            factor * given.seconds(each.new_tokens, each.depth) / each.seconds - 1 for each in self.measured
        ]
        longest = max(each.new_tokens + each.depth for each in self.measured)
        scaled = given.scaled(factor, math.sqrt(sum(each**2 for each in missed) / len(missed)))
        return replace(scaled, longest=max(given.longest, longest))

    def run(
        self, ids: Ids, output: Ids, match: Match, spans: Sequence[TokenRange]
    ) -> tuple[tuple[Payload, ...], npt.NDArray[np.float32], Cost] | None:
        """Prefill a prompt behind what the cache has of it.

        Args:
            ids: the prompt, shape `(n,)`.
            output: what of its reply is stored with it, shape `(m,)`.
            match: what the cache takes over.
            spans: what the cache wants of it.

        Returns:
            The states of `spans`, the logits of the prompt's last position, and the measured cost; None where
            time ran out before the end, after which the engine stands still.
        """
        from ..engine.mlx_engine import OutOfTime

        engine = self._engine
        assert engine is not None
        if self._deadline is None and self._max_seconds is not None:
            self._deadline = time.monotonic() + self._max_seconds
        try:
            done = engine.prefill(
                ids,
                [cast("StateBlock", block.payload) for block in match.blocks],
                match.reused,
                spans=spans,
                output=output,
                deadline=self._deadline,
            )
        except OutOfTime:
            self.stopped = True
            return None
        self.measured.append(Measured(len(ids) - match.reused, match.reused, done.seconds))
        timings = Timings(done.restore_seconds, done.store_seconds, done.output_seconds, done.peak_bytes)
        return done.payloads, done.logits, Cost(done.seconds, "measured", measured=timings)

    def verify(self, ids: Ids, logits: npt.NDArray[np.float32]) -> Verification | None:
        """Compare a prefill with cold ones, as `MLXEngine.verify` does; None where time ran out before."""
        from ..engine.mlx_engine import OutOfTime

        assert self._engine is not None
        try:
            return self._engine.verify(ids, logits, deadline=self._deadline)
        except OutOfTime:
            self.stopped = True
            return None

    def predicted(self, new_tokens: int, depth: int) -> Cost | None:
        """Return what a prefill would take; None where there is nothing to predict it from."""
        cost = self.cost
        if cost is None:
            return None
        return Cost(cost.seconds(new_tokens, depth), "predicted", cost.error_of(new_tokens, depth))

    def prediction(self) -> Prediction | None:
        """Say what predicted seconds come from, those that were wasted among them; None for nothing."""
        cost = self.cost
        if cost is None:
            return None
        quality = PredictionQuality(
            cost.error, cost.median_error, cost.longest, len(self.measured), self._correction
        )
        if self.rate:
            return Prediction("rate", f"{self.rate:,g} tokens per second, whatever the depth")
        if self._calibration:
            made = self._calibration
            source = f"a calibration of {made.model.source} on {made.machine.described} of {made.measured}"
            return Prediction("calibration", source, quality)
        return Prediction("turns", "the prefills of this replay that were measured", quality)
