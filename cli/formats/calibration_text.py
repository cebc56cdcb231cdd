"""A calibration as a table for a terminal."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ...probes.cost.calibration import Calibration
from ...probes.cost.cost_model import CostModel
from .durations import duration

#: Spread of a point's runs that says more about the machine's other work than about the model.
UNSTEADY = 0.3


def draw(calibration: Calibration, file: Path, console: Console) -> None:
    """Print the measurements with what the fitted model predicts for them, and the error."""
    cost = calibration.cost
    assert cost is not None
    table = Table(pad_edge=False)
    for name in ("depth", "new tokens", "runs", "seconds", "spread", "predicted"):
        table.add_column(name, justify="right", no_wrap=True)
    for point in calibration.points:
        predicted = cost.seconds(point.new_tokens, point.depth)
        table.add_row(
            f"{point.depth:,}",
            f"{point.new_tokens:,}",
            f"{len(point.seconds)}",
            f"{point.median:.3g}",
            "" if point.spread is None else f"{point.spread:.0%}",
            f"{predicted:.3g} ({predicted / point.median - 1:+.0%})",
        )
    console.print(table)
    for line in (_what(calibration), _quality(calibration, cost), _rates(cost), _kept(cost, file)):
        console.print(escape(line), soft_wrap=True, highlight=False)


def _what(calibration: Calibration) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in calibration.versions.items())
    model = calibration.model
    bits = "" if model.kv_bits is None else f"; K and V in {model.kv_bits} bits by {model.kv_group_size}"
    return (
        f"Measured: {model.source} ({calibration.weights}{bits}; {calibration.blas} BLAS) on "
        f"{calibration.machine.described}, {versions}, {calibration.measured}."
    )


def _quality(calibration: Calibration, cost: CostModel) -> str:
    spread = calibration.spread
    runs = "" if spread is None else f" The runs of one point differ by {spread:.0%} (median, measured)."
    if cost.error is None or cost.median_error is None:
        return f"Too few points to fit depth or to know the error.{runs}"
    if spread is not None and spread > UNSTEADY:
        runs += " That is a lot: repeat with --again when the machine is idle."
    return (
        f"A point that was left out of the fit is predicted with an error of {cost.median_error:.0%} "
        f"(median; root mean square {cost.error:.0%}).{runs}"
    )


def _rates(cost: CostModel) -> str:
    """Say how fast prefills are at depths from 0 to the last one that was measured."""
    new = min(1024, cost.longest)
    deepest = cost.longest - new
    said = []
    for depth in sorted({0, deepest // 2, deepest}):
        seconds = cost.seconds(new, depth)
        said.append(f"{new / seconds:,.0f} at depth {depth:,}" if seconds else "")
    return f"Tokens per second, {new:,} at a time (predicted): {', '.join(filter(None, said))}."


def _kept(cost: CostModel, file: Path) -> str:
    whole = duration(cost.seconds(cost.longest, 0))
    return (
        f"A cold prompt of {cost.longest:,} tokens takes {whole} (predicted); longer ones are extrapolated. "
        f"Replays of this model on this machine use this. It is kept in {file}."
    )
