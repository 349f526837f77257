"""Whether the terminal is light or dark: asked by OSC 11 before the screen opens, else read from COLORFGBG.

What the user types meanwhile is kept. Knows no widget and no theme.
"""

import os
import re
import select
import sys
from dataclasses import dataclass
from time import monotonic

# The background, and the kind of the terminal: every terminal tells its kind, and that ends the wait.
QUESTIONS = b"\x1b]11;?\x1b\\\x1b[c"
COLOUR_ANSWER = re.compile(rb"\x1b\]11;rgba?:([0-9a-fA-F]+)/([0-9a-fA-F]+)/([0-9a-fA-F]+)[^\x07\x1b]*(?:\x07|\x1b\\)")
KIND_ANSWER = re.compile(rb"\x1b\[\?[\d;]*c")
CONTROL_BYTES = re.compile(rb"\x1b(?:\[[\d;?]*.|.)?|[\x00-\x1f\x7f]", re.DOTALL)
MAX_WAIT_SECONDS = 1.0
LUMINANCE_SHARES = 0.299, 0.587, 0.114  # of red, green and blue
LIGHT_COLOUR_NUMBERS = ("7", "15")  # of COLORFGBG: white and bright white


@dataclass(frozen=True)
class TerminalBackground:
    """`typed` is the text that came between the answers."""

    is_light: bool = False
    typed: str = ""


DARK_BACKGROUND = TerminalBackground()


def terminal_background() -> TerminalBackground:
    """Ask the terminal. Where it does not answer, COLORFGBG counts; without it, the background is dark."""
    return read_answers(_ask() if sys.stdin.isatty() else b"", os.environ.get("COLORFGBG", ""))


def read_answers(answers: bytes, colorfgbg: str) -> TerminalBackground:
    """The background that the answers, or else the variable, tell."""
    is_light = colorfgbg.rpartition(";")[2] in LIGHT_COLOUR_NUMBERS
    if colour := COLOUR_ANSWER.search(answers):
        parts = (int(part, 16) / (16 ** len(part) - 1) for part in colour.groups())
        is_light = sum(share * part for share, part in zip(LUMINANCE_SHARES, parts, strict=True)) > 0.5
    typed = CONTROL_BYTES.sub(b"", KIND_ANSWER.sub(b"", COLOUR_ANSWER.sub(b"", answers)))
    return TerminalBackground(is_light, typed.decode("utf-8", "ignore"))


def _ask() -> bytes:
    try:
        import termios
        import tty

        number, answers = sys.stdin.fileno(), b""
    except (ImportError, OSError):
        return b""  # Windows, or no real terminal
    before, until = termios.tcgetattr(number), monotonic() + MAX_WAIT_SECONDS
    try:
        tty.setcbreak(number, termios.TCSANOW)
        os.write(number, QUESTIONS)
        while (
            not KIND_ANSWER.search(answers)
            and select.select([number], [], [], max(0.0, until - monotonic()))[0]
            and (received := os.read(number, 1024))
        ):
            answers += received
    finally:
        termios.tcsetattr(number, termios.TCSANOW, before)
    return answers
