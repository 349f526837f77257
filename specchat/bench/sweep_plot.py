"""A bench as a PNG or SVG plot: speedup by budget, a line for each drafter, the prediction dashed beside it."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from specchat.bench.columns import CombinationResult
from specchat.bench.combinations import PLAIN
from specchat.errors import InputError, UsageError

SUFFIXES = (".png", ".svg")
PANEL_INCHES = (4.6, 3.4)  # of each panel
DOTS_PER_INCH = 110


def check_plot_path(path: Path) -> None:
    """Refuse a path that cannot be plotted now, not after an hour of measuring."""
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path}: a plot file ends in {' or '.join(SUFFIXES)}")
    if find_spec("matplotlib") is None:
        raise InputError("plots need matplotlib: pip install 'specchat[pictures]'")


def draw_sweep(rows: Sequence[CombinationResult], path: Path, title: str) -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    panels = list(dict.fromkeys((row.combination.kind, row.combination.temperature) for row in rows))
    temperatures = sorted({temperature for _kind, temperature in panels})
    kinds = list(dict.fromkeys(kind for kind, _temperature in panels))
    lines = dict.fromkeys(
        (row.combination.drafter, row.combination.width) for row in rows if row.combination.drafter != PLAIN
    )
    colors = {line: f"C{number}" for number, line in enumerate(lines)}
    size = (PANEL_INCHES[0] * len(kinds), PANEL_INCHES[1] * len(temperatures))
    with mpl.rc_context({"svg.hashsalt": "specchat", "svg.fonttype": "none"}):  # equal rows give an equal file
        figure = Figure(figsize=size, layout="constrained")
        grid: Any = figure.subplots(len(temperatures), len(kinds), squeeze=False, sharey="row")
        for row, temperature in enumerate(temperatures):
            for column, kind in enumerate(kinds):
                here = [
                    each
                    for each in rows
                    if (each.combination.kind, each.combination.temperature) == (kind, temperature)
                ]
                _panel(grid[row][column], here, colors, f"{kind}, temperature {temperature:g}")
        for row in grid:
            row[0].set_ylabel("speedup over plain decoding")
        figure.suptitle(title, fontsize=10)
        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=6, fontsize=8)
        metadata = {"Date": None} if path.suffix == ".svg" else {}
        figure.savefig(path, dpi=DOTS_PER_INCH, metadata=metadata)


def _panel(axes: Any, rows: Sequence[CombinationResult], colors: Mapping[tuple[str, int], str], title: str) -> None:
    for (drafter, width), color in colors.items():
        line = sorted(
            (row for row in rows if (row.combination.drafter, row.combination.width) == (drafter, width)),
            key=lambda row: row.combination.budget,
        )
        if not line:
            continue
        budgets, speeds = [row.combination.budget for row in line], [row.median_speedup for row in line]
        below = [row.median_speedup - row.speedup_range[0] for row in line]
        above = [row.speedup_range[1] - row.median_speedup for row in line]
        name = drafter + (f" by {width}" if width else "")
        axes.errorbar(
            budgets, speeds, yerr=[below, above], color=color, label=name, marker="o", markersize=3,
            linewidth=1.2, elinewidth=0.6, capsize=2,
        )  # fmt: skip
        predicted = [row.predicted_speedup for row in line]
        axes.plot(budgets, predicted, color=color, linestyle="--", linewidth=0.8)
    axes.axhline(1.0, color="gray", linewidth=0.8)
    axes.set_xscale("log", base=2)
    budgets = sorted({row.combination.budget for row in rows if row.combination.budget})
    axes.set_xticks(budgets, [str(budget) for budget in budgets])
    axes.set(title=title, xlabel="budget (most draft tokens in a pass)")
    axes.title.set_fontsize(9)
    axes.grid(alpha=0.3)
