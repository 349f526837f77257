"""The table of `specchat stats` as a PNG or SVG plot: speedup and acceptance rate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specchat.bench.sweep_plot import DOTS_PER_INCH

if TYPE_CHECKING:
    from specchat.cli.stats import AnswerTotals

FIGURE_INCHES = (9.0, 1.4, 0.28)  # width, height, and height of each row
MISSING_VALUE = float("nan")  # draws nothing


def draw_stats(totals: Sequence[AnswerTotals], grouping: str, path: Path) -> None:
    """Two panels: bars by variant or task, a line over days."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    width, height, row = FIGURE_INCHES
    with mpl.rc_context({"svg.hashsalt": "specchat", "svg.fonttype": "none"}):  # the same history, the same file
        figure = Figure(figsize=(width, height + row * max(len(totals), 4)), layout="constrained")
        left, right = figure.subplots(1, 2)
        _panel(left, totals, [each.speedup for each in totals], grouping, "speedup over plain decoding")
        rates = [None if each.acceptance_rate is None else 100 * each.acceptance_rate for each in totals]
        _panel(right, totals, rates, grouping, "accepted draft tokens, %")
        if grouping == "day":
            left.axhline(1.0, color="gray", linewidth=0.8)
        else:
            left.axvline(1.0, color="gray", linewidth=0.8)
        dated = {"Date": None} if path.suffix == ".svg" else {}
        figure.savefig(path, dpi=DOTS_PER_INCH, metadata=dated)


def _panel(axes: Any, sums: Sequence[AnswerTotals], values: Sequence[float | None], grouping: str, title: str) -> None:
    names = [each.name for each in sums]
    known = [MISSING_VALUE if value is None else value for value in values]
    if grouping == "day":
        axes.plot(names, known, marker="o", markersize=3, linewidth=1.2)
        axes.tick_params(axis="x", rotation=45)
        axes.set_ylim(bottom=0)
    else:
        axes.barh(names, known)
        axes.set_ylim(len(names) - 0.5, -0.5)  # the first on top, with room for empty rows
    axes.set_title(title, fontsize=9)
    axes.grid(alpha=0.3)
