"""Loss curves as pictures, one for each stage."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

SMOOTHING = 0.95


def plot_loss_curves(folder: Path) -> None:
    """Draw every CSV of the folder as a PNG beside it."""
    from matplotlib.figure import Figure  # heavy, and only this function needs it

    for path in sorted(folder.glob("*.csv")):
        with path.open() as lines:
            rows = list(csv.DictReader(lines))
        if len(rows) < 2:
            continue
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.subplots()
        millions = [int(row["tokens"]) / 1e6 for row in rows]
        for name in [name for name in rows[0] if name not in ("step", "tokens", "seconds", "gradient")]:
            axes.plot(millions, exponential_moving_average([float(row[name]) for row in rows]), label=name, linewidth=1)
        axes.set(title=path.stem, xlabel="million tokens", ylabel="loss (smoothed)")
        axes.legend()
        axes.grid(alpha=0.3)
        figure.savefig(path.with_suffix(".png"), dpi=110)


def exponential_moving_average(values: list[float]) -> list[float]:
    """A running mean that starts at the first value."""
    kept, lines = values[0], []
    for value in values:
        kept = SMOOTHING * kept + (1.0 - SMOOTHING) * value
        lines.append(kept)
    return lines


def plot_head_comparison(before: Sequence[float], after: Sequence[float], path: Path) -> None:
    """Guesses that held for each pass, turn by turn: what there was against the new head; above the line it is better."""
    from matplotlib.figure import Figure  # heavy, and only this function needs it

    figure = Figure(figsize=(5, 5), layout="constrained")
    axes = figure.subplots()
    most = max([1.0, *before, *after])
    axes.plot((0, most), (0, most), linewidth=1, color="grey")
    axes.scatter(before, after, s=14, alpha=0.7)
    axes.set(title="held-out turns", xlabel="guesses held for each pass, before", ylabel="now")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
