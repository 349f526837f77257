"""The characters to draw with: Unicode, or ASCII for terminals and screen readers.

Also `printable`, which makes control characters of a model visible instead of sending them to the terminal.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from specchat.terminal import printable_with_tabs

TAB_SPACES = "    "


@dataclass(frozen=True)
class Glyphs:
    is_ascii: bool
    prompt_mark: str
    separator: str
    rule: str
    drafter_mark: str
    times: str
    dot: str
    arrow: str
    sparkline_levels: str
    ellipsis: str
    line_end: str
    bar_parts: str  # of the acceptance bar: accepted, rejected, no draft tokens
    unfolded_mark: str  # above a text that can be folded

    def drawn(self, text: str) -> str:
        """A text of ours with the characters that the terminal has."""
        return text.replace("·", self.dot).replace("…", self.ellipsis)


UNICODE = Glyphs(False, "›", "│", "─", "▸", "×", "·", "→", "▁▂▃▄▅▆▇█", "…", "↵", "█░·", "▾")
ASCII = Glyphs(True, ">", "|", "-", ">", "x", "-", ">", "_.-=+*#@", "...", "\\n", "#x.", "v")


def choose_glyphs(is_ascii: bool | None = None) -> Glyphs:
    """The glyphs that the user chose, else those that the locale supports."""
    if is_ascii is None:
        locale = os.environ.get("LC_ALL") or os.environ.get("LC_CTYPE") or os.environ.get("LANG") or ""
        is_ascii = bool(locale) and "utf" not in locale.lower()
    return ASCII if is_ascii else UNICODE


def sparkline(values: Sequence[int], glyphs: Glyphs = UNICODE) -> str:
    """Values as a row of small columns, scaled to the largest value."""
    top = max(values, default=0)
    last = len(glyphs.sparkline_levels) - 1
    return "".join(glyphs.sparkline_levels[round(last * count / top)] for count in values) if top else ""


def printable(text: str) -> str:
    """Replace control characters by visible ones; tabs become spaces.

    An escape becomes "␛", so a colour code reads as "␛[31m" and has no effect.
    """
    return printable_with_tabs(text).replace("\t", TAB_SPACES)
