"""The characters the screen is drawn with: the usual ones, and ASCII for terminals and readers that want no other.

Also what a model may not do: whatever would talk to the terminal is shown as a character instead.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")
CONTROL_PICTURES = 0x2400  # where Unicode keeps a picture of every control character
DELETE, PICTURE_OF_DELETE = 0x7F, 0x2421
TAB_SPACES = "    "


@dataclass(frozen=True)
class Glyphs:
    """Every character that is no word."""

    is_ascii: bool
    prompt_mark: str
    separator: str
    rule: str
    drafter_mark: str
    tokens_per_step: str
    times: str
    dot: str
    arrow: str
    sparkline_levels: str
    ellipsis: str
    line_end: str


UNICODE = Glyphs(False, "›", "│", "─", "▸", "τ", "×", "·", "→", "▁▂▃▄▅▆▇█", "…", "↵")
ASCII = Glyphs(True, ">", "|", "-", ">", "len", "x", "-", ">", "_.-=+*#@", "...", "\\n")


def choose_glyphs(is_ascii: bool | None = None) -> Glyphs:
    """What was asked for, else what the locale can spell."""
    if is_ascii is None:
        locale = os.environ.get("LC_ALL") or os.environ.get("LC_CTYPE") or os.environ.get("LANG") or ""
        is_ascii = bool(locale) and "utf" not in locale.lower()
    return ASCII if is_ascii else UNICODE


def printable(text: str) -> str:
    """The text with every character that a terminal would obey as one that it shows; tabs become spaces.

    An escape becomes "␛", so a colour code reads as "␛[31m" and colours nothing.
    """
    return printable_with_tabs(text).replace("\t", TAB_SPACES)


def printable_with_tabs(text: str) -> str:
    """The same with its tabs, for a text that is still to be used."""
    return CONTROL_CHARACTERS.sub(_control_picture, text.replace("\r\n", "\n"))


def _control_picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(CONTROL_PICTURES + code)
    return chr(PICTURE_OF_DELETE) if code == DELETE else "\N{REPLACEMENT CHARACTER}"
