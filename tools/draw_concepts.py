"""Draw the figures of docs/concepts.md: a draft tree, tokens per step, and speedup by the number of draft tokens.

python -m tools.draw_concepts [FOLDER]

The tree is one that prompt lookup proposes, with words in the place of tokens. The costs are those of docs/passes.md.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from specchat.drafters.prompt_lookup import PromptLookup
from specchat.engine.drafter import DraftContext
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree

ROOT = Path(__file__).parents[1]
TEXT = "the cat sat on the mat and she sat on the old chair until he sat on the"
MAX_DRAFT_TOKENS = 9
RATES = (0.5, 0.7, 0.8, 0.9)
COST_ROWS = {  # the name of a machine in the figure, and how its row in docs/passes.md starts
    "two virtual cores with AMX": "| native | 128 |",
    "one core without AMX": "| float | 128 |",
}
ACCEPTANCE_RATE = 0.7  # in the figure of costs
COLOURS = ("#2a6fbb", "#b3541e", "#3b7d3b", "#7a4aa0")
STYLE = (
    "text{font:13px sans-serif;fill:#1c2430} .note{font-size:11px;fill:#5b6b82} .box{fill:#eef2f8;stroke:#5b6b82} "
    ".seen{fill:#2a6fbb} .hidden{fill:#eef2f8;stroke:#c3ccd9} .axis{stroke:#5b6b82} .line{fill:none;stroke-width:2}"
)


@dataclass(frozen=True)
class Curve:
    name: str
    points: Sequence[tuple[float, float]]


def draft_tree() -> tuple[DraftTree, Sequence[str]]:
    """The tree that prompt lookup proposes for the text, and the word of each token id."""
    words = TEXT.split()
    names = list(dict.fromkeys(words))
    tokens = [names.index(word) for word in words]
    return PromptLookup().propose(DraftContext(tokens, Sampler(), MAX_DRAFT_TOKENS)), names


def draw_tree() -> str:
    tree, names = draft_tree()
    places, leaves = dict[int, tuple[float, float]](), 0
    for node in range(len(tree)):
        parent = tree.parents[node]
        if parent >= 0 and parent != node - 1:
            leaves += 1  # a fork begins a new line
        places[node] = (20 + 78 * tree.depths[node], 70 + 60 * leaves)
    parts = [f'<text x="20" y="24">… {escape(" ".join(TEXT.split()[-8:]))}</text>']
    for node, (x, y) in places.items():
        if (parent := tree.parents[node]) >= 0:
            from_x, from_y = places[parent]
            parts.append(f'<line class="axis" x1="{from_x + 60}" y1="{from_y}" x2="{x}" y2="{y}"/>')
        parts.append(f'<rect class="box" x="{x}" y="{y - 15}" width="60" height="30" rx="6"/>')
        parts.append(f'<text x="{x + 30}" y="{y + 5}" text-anchor="middle">{escape(names[tree.tokens[node]])}</text>')
    left, top = 40 + 78 * (1 + max(tree.depths)), 60
    parts.append(f'<text class="note" x="{left}" y="{top - 12}">which node (row) sees which (column)</text>')
    for row, seen in enumerate(tree.attention_mask().tolist()):
        parts += [
            f'<rect class="{"seen" if is_seen else "hidden"}" x="{left + 18 * column}" y="{top + 18 * row}" '
            'width="16" height="16"/>'
            for column, is_seen in enumerate(seen)
        ]
    height = max(top + 18 * len(tree), 70 + 60 * (leaves + 1)) + 10
    return _svg(left + max(18 * len(tree), 220) + 20, height, parts)


def expected_tokens(rate: float, draft_tokens: int) -> float:
    """The mean number of tokens that a step commits, with a chain of draft tokens that are accepted at this rate."""
    return sum(rate**depth for depth in range(draft_tokens + 1))


def pass_costs(text: str) -> Mapping[str, Mapping[int, float]]:
    """c(M) by machine, as docs/passes.md has them."""
    costs, lines = dict[str, Mapping[int, float]](), text.splitlines()
    for machine, row_start in COST_ROWS.items():
        number = next(number for number, line in enumerate(lines) if line.startswith(row_start))
        header = next(line for line in reversed(lines[:number]) if "c(8)" in line)
        cells = zip(header.split("|"), lines[number].split("|"), strict=True)
        measured = {int(found[1]): cell for name, cell in cells if (found := re.fullmatch(r"c\((\d+)\)", name.strip()))}
        costs[machine] = {1: 1.0, **{rows: float(cell.split(",")[0]) for rows, cell in measured.items()}}
    return costs


def cost_at(costs: Mapping[int, float], rows: int) -> float:
    """c(M) between two measured row counts, on the line between them."""
    lower = max(count for count in costs if count <= rows)
    upper = min(count for count in costs if count >= rows)
    share = (rows - lower) / (upper - lower) if upper > lower else 0.0
    return costs[lower] + share * (costs[upper] - costs[lower])


def draw_acceptance() -> str:
    curves = [Curve(f"a = {rate}", [(k, expected_tokens(rate, k)) for k in range(17)]) for rate in RATES]
    return _plot(curves, "draft tokens in a chain", "tokens/step")


def draw_costs() -> str:
    tables = pass_costs((ROOT / "docs" / "passes.md").read_text(encoding="utf-8"))
    speedup: Callable[[Mapping[int, float], int], float]
    speedup = lambda costs, k: expected_tokens(ACCEPTANCE_RATE, k) / cost_at(costs, k + 1)
    curves = [Curve(name, [(k, speedup(costs, k)) for k in range(17)]) for name, costs in tables.items()]
    return _plot(curves, f"draft tokens in a chain, each accepted at a = {ACCEPTANCE_RATE}", "times plain decoding")


def _plot(curves: Sequence[Curve], x_name: str, y_name: str) -> str:
    """Lines from the origin of the axes, with their names at their ends."""
    left, top, width, height = 60, 30, 480, 260
    x_end, y_end = max(x for each in curves for x, _ in each.points), max(y for each in curves for _, y in each.points)
    parts = [
        f'<line class="axis" x1="{left}" y1="{top + height}" x2="{left + width}" y2="{top + height}"/>',
        f'<line class="axis" x1="{left}" y1="{top}" x2="{left}" y2="{top + height}"/>',
        f'<text x="{left}" y="{top - 12}">{escape(y_name)}</text>',
        f'<text x="{left + width}" y="{top + height + 38}" text-anchor="end">{escape(x_name)}</text>',
    ]
    for value in range(int(y_end) + 1):
        y = top + height * (1 - value / y_end)
        parts.append(f'<text class="note" x="{left - 8}" y="{y + 4:.0f}" text-anchor="end">{value}</text>')
    for value in range(0, int(x_end) + 1, 4):
        x = left + width * value / x_end
        parts.append(f'<text class="note" x="{x:.0f}" y="{top + height + 18}" text-anchor="middle">{value}</text>')
    for curve, colour in zip(curves, COLOURS, strict=False):
        points = [(left + width * x / x_end, top + height * (1 - y / y_end)) for x, y in curve.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline class="line" stroke="{colour}" points="{path}"/>')
        parts.append(f'<text x="{points[-1][0] + 8:.0f}" y="{points[-1][1] + 4:.0f}">{escape(curve.name)}</text>')
    return _svg(left + width + 200, top + height + 50, parts)


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}">\n'
        f'<style>{STYLE}</style>\n<rect width="100%" height="100%" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


FIGURES = {"concept-tree": draw_tree, "concept-acceptance": draw_acceptance, "concept-costs": draw_costs}


def main() -> int:
    parser = argparse.ArgumentParser(description="Draw the figures of docs/concepts.md.")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "docs")
    folder = parser.parse_args().folder
    for name, draw in FIGURES.items():
        (folder / f"{name}.svg").write_text(draw(), encoding="utf-8")
        print(folder / f"{name}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
