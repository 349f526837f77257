"""Plots of loss curves."""

import csv
from pathlib import Path

SMOOTHING = 0.95


def plot_loss_curves(folder: Path) -> None:
    from matplotlib.figure import Figure  # slow to import

    for path in sorted(folder.glob("*.csv")):
        with path.open() as file:
            rows = list(csv.DictReader(file))
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
    mean, means = values[0], list[float]()
    for value in values:
        mean = SMOOTHING * mean + (1.0 - SMOOTHING) * value
        means.append(mean)
    return means
