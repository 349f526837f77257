"""Draw docs/architecture.svg: the packages by layer, as the import contract in pyproject.toml orders them.

python -m tools.draw_packages [FILE]
"""

from __future__ import annotations

import argparse
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "specchat"
WIDTH, ROW_HEIGHT, BOX_HEIGHT, MARGIN, GAP = 960, 56, 44, 12, 8
STYLE = "rect{fill:#eef2f8;stroke:#5b6b82} text{font:13px sans-serif;fill:#1c2430} .note{font-size:11px;fill:#5b6b82}"


def layers() -> list[list[str]]:
    """The names in each layer of the first contract, the highest layer first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = settings["tool"]["importlinter"]["contracts"][0]
    return [re.findall(r"\w+", layer) for layer in contract["layers"]]


def summary_of(name: str) -> str:
    """The first clause of the docstring of a package or module."""
    path = PACKAGE / name / "__init__.py"
    text = (path if path.is_file() else PACKAGE / f"{name}.py").read_text(encoding="utf-8")
    [sentence] = re.findall(r'^"""(.*?)(?:[.:;]\s|[.:;]"""|"""|\n)', text)[:1] or [""]
    return sentence


def draw(rows: Sequence[Sequence[str]]) -> str:
    """The picture as SVG."""
    boxes = list[str]()
    for index, names in enumerate(rows):
        top, width = MARGIN + index * ROW_HEIGHT, (WIDTH - 2 * MARGIN - GAP * (len(names) - 1)) / len(names)
        for place, name in enumerate(names):
            left = MARGIN + place * (width + GAP)
            letters = int(width / 6.2) - 2
            summary = summary_of(name)
            summary = summary if len(summary) <= letters else f"{summary[: letters - 1].rsplit(' ', 1)[0]} …"
            boxes += [
                f'<rect x="{left:.0f}" y="{top}" width="{width:.0f}" height="{BOX_HEIGHT}" rx="6"/>',
                f'<text x="{left + 8:.0f}" y="{top + 18}">{escape(name)}</text>',
                f'<text class="note" x="{left + 8:.0f}" y="{top + 35}">{escape(summary)}</text>',
            ]
    height = 2 * MARGIN + len(rows) * ROW_HEIGHT
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">'
    return "\n".join([head, f"<style>{STYLE}</style>", *boxes, "</svg>"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the packages by layer.")
    parser.add_argument("file", nargs="?", type=Path, default=ROOT / "docs" / "architecture.svg")
    parser.parse_args().file.write_text(draw(layers()), encoding="utf-8")


if __name__ == "__main__":
    main()
