"""A frame of the screen as text that people can read and compare: every row, and below it a letter for each style.

    | › count 4
    ~ abbbbbbb

The last letter of a row goes on to its end. The letters are explained at the end of the file. Colours are compared only
under the release of Textual that drew them; what stands where is compared under every one.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from string import ascii_letters, digits

import textual
from rich.style import Style

FOLDER = Path(__file__).with_name("snapshots")
REFRESH = "REFRESH_SNAPSHOTS"
NAMES = ascii_letters + digits
DRAWN_BY = f"drawn by textual {textual.__version__}"


def frame_of(screen) -> str:
    """The drawn screen."""
    legend: dict[str, str] = {}
    rows: list[str] = []
    for strip in screen._compositor.render_strips():
        letters = "".join(_letter(segment.style, legend) * segment.cell_length for segment in strip)
        rows += [f"| {strip.text.rstrip()}".rstrip(), f"~ {_shortened(letters)}"]
    return "\n".join([*rows, "", *(f"{letter} {style}" for style, letter in legend.items()), DRAWN_BY, ""])


def text_of(frame: str) -> str:
    """A frame without its styles."""
    return "\n".join(line for line in frame.split("\n") if line.startswith("|"))


def check(name: str, frame: str) -> None:
    """Compare with the stored frame, or store it when requested."""
    path = FOLDER / f"{name}.txt"
    if os.environ.get(REFRESH):
        path.write_text(frame, encoding="utf-8")
    expected = path.read_text(encoding="utf-8") if path.exists() else ""
    if expected.rstrip("\n").rpartition("\n")[2] != DRAWN_BY:
        expected, frame = text_of(expected), text_of(frame)
    difference = difflib.unified_diff(
        expected.split("\n"), frame.split("\n"), f"{name}, stored", "drawn now", "", "", 1, ""
    )
    found = "\n".join(difference)
    assert not found, f"{found}\n\nIf that is how it shall look: {REFRESH}=1 pytest tests/tui/test_snapshots.py"


def _letter(style: Style | None, legend: dict[str, str]) -> str:
    drawn = _named(style or Style())
    return legend.setdefault(drawn, NAMES[len(legend)])


def _named(style: Style) -> str:
    """Colours and attributes; links and meta data are ignored."""
    looks = [name for name in ("bold", "dim", "italic", "underline", "reverse", "strike") if getattr(style, name)]
    colour, behind = (each.get_truecolor().hex if each else "" for each in (style.color, style.bgcolor))
    return " ".join(filter(None, [*looks, colour, f"on {behind}" if behind else ""]))


def _shortened(letters: str) -> str:
    last = letters[-1:]
    return letters.rstrip(last) + last
