"""A bench as a PNG or SVG plot: speedup by budget, a line for each drafter, the prediction dashed beside it.

    specchat bench drafters edits.jsonl --budgets 4,8,16 --json bench.json
    python -m tools.plot_bench bench.json bench.svg

Needs `pip install 'specchat[pictures]'`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from specchat.errors import UsageError
from specchat_bench.combinations import PLAIN
from tools.instrument import run_instrument

SUFFIXES = (".png", ".svg")
PANEL_INCHES = (4.6, 3.4)  # of each panel
DOTS_PER_INCH = 110
Row = Mapping[str, Any]  # one of the file


@click.command("plot_bench")
@click.argument("bench", type=click.Path(path_type=Path, exists=True))
@click.argument("picture", type=click.Path(path_type=Path))
def plot(bench: Path, picture: Path) -> None:
    """Draw what `specchat bench drafters --json BENCH` wrote."""
    if picture.suffix not in SUFFIXES:
        raise UsageError(f"{picture}: a plot file ends in {' or '.join(SUFFIXES)}")
    document = json.loads(bench.read_text(encoding="utf-8"))
    draw_sweep(document["rows"], picture, "{target} on {device}, {dtype}, {date}".format(**document))


def draw_sweep(rows: Sequence[Row], path: Path, title: str) -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    panels = list(dict.fromkeys((row["kind"], row["temperature"]) for row in rows))
    temperatures = sorted({temperature for _kind, temperature in panels})
    kinds = list(dict.fromkeys(kind for kind, _temperature in panels))
    lines = dict.fromkeys((_drafter(row), row["width"]) for row in rows if _drafter(row) != PLAIN)
    colors = {line: f"C{number}" for number, line in enumerate(lines)}
    size = (PANEL_INCHES[0] * len(kinds), PANEL_INCHES[1] * len(temperatures))
    with mpl.rc_context({"svg.hashsalt": "specchat", "svg.fonttype": "none"}):  # equal rows give an equal file
        figure = Figure(figsize=size, layout="constrained")
        grid: Any = figure.subplots(len(temperatures), len(kinds), squeeze=False, sharey="row")
        for line, temperature in zip(grid, temperatures, strict=True):
            for axes, kind in zip(line, kinds, strict=True):
                here = [row for row in rows if (row["kind"], row["temperature"]) == (kind, temperature)]
                _panel(axes, here, colors, f"{kind}, temperature {temperature:g}")
            line[0].set_ylabel("speedup over plain decoding")
        figure.suptitle(title, fontsize=10)
        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=6, fontsize=8)
        metadata = {"Date": None} if path.suffix == ".svg" else {}
        figure.savefig(path, dpi=DOTS_PER_INCH, metadata=metadata)


def _panel(axes: Any, rows: Sequence[Row], colors: Mapping[tuple[str, int], str], title: str) -> None:
    for (drafter, width), color in colors.items():
        line = [row for row in rows if (_drafter(row), row["width"]) == (drafter, width)]
        line.sort(key=lambda row: row["budget"])
        if not line:
            continue
        budgets, speeds = [row["budget"] for row in line], [row["speedup"] for row in line]
        below = [row["speedup"] - row["speedup_range"][0] for row in line]
        above = [row["speedup_range"][1] - row["speedup"] for row in line]
        name = drafter + (f" by {width}" if width else "")
        axes.errorbar(
            budgets, speeds, yerr=[below, above], color=color, label=name, marker="o", markersize=3,
            linewidth=1.2, elinewidth=0.6, capsize=2,
        )  # fmt: skip
        axes.plot(budgets, [row["predicted_speedup"] for row in line], color=color, linestyle="--", linewidth=0.8)
    axes.axhline(1.0, color="gray", linewidth=0.8)
    axes.set_xscale("log", base=2)
    budgets = sorted({row["budget"] for row in rows if row["budget"]})
    axes.set_xticks(budgets, [str(budget) for budget in budgets])
    axes.set(title=title, xlabel="budget (most draft tokens in a pass)")
    axes.title.set_fontsize(9)
    axes.grid(alpha=0.3)


def _drafter(row: Row) -> str:
    """The drafter of a row without its budget and width."""
    return str(row["drafter"]).split(" ")[0]


if __name__ == "__main__":
    sys.exit(run_instrument(plot))
